// Command stub plays what a machine without GPUs lacks. Its first argument says which part:
//
//	device-plugin N   offer N GPUs to the kubelet as amd.com/gpu, as the ROCm device plugin does
//	devices           list the GPU device files that this container sees, and end
//	pause             hold a pod's namespaces until told to end
//
// One static binary, so that it is also the whole content of the container image that the tests use.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	var err error
	switch part := strings.Join(os.Args[1:2], ""); part {
	case "device-plugin":
		var count int
		if count, err = strconv.Atoi(os.Args[2]); err == nil {
			err = serveDevicePlugin(count)
		}
	case "devices":
		err = listDevices()
	case "pause":
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
		<-ended
	default:
		err = fmt.Errorf("unknown part %q", part)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(1)
	}
}

// listDevices writes the device files to standard output and to the pod's termination message.
func listDevices() error {
	paths, err := filepath.Glob("/dev/dri/*")
	if err != nil {
		return err
	}
	if _, err := os.Stat("/dev/kfd"); err == nil {
		paths = append([]string{"/dev/kfd"}, paths...)
	}
	list := strings.Join(paths, "\n")
	fmt.Println(list)
	return os.WriteFile("/dev/termination-log", []byte(list), 0o644)
}
