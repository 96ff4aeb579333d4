"""What can go wrong with a control plane.

ControlPlaneError          something failed; the message says what and shows the log
└── UnavailableError            this machine lacks something; the message says what to install or set
"""


class ControlPlaneError(Exception):
    """A control plane, or a command against it, failed."""


class UnavailableError(ControlPlaneError):
    """No control plane can run here until something is installed or set."""
