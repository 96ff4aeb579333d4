package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "amd.com/gpu"
	socket   = "amd.com_gpu"
	// The kernel numbers render devices from here.
	firstRenderMinor = 128
)

// plugin hands out /dev/null under the names of GPU device files: it can be opened by everybody and does no harm.
type plugin struct {
	api.UnimplementedDevicePluginServer
	count int
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	devices := make([]*api.Device, p.count)
	for i := range devices {
		// The ROCm device plugin names a GPU by its PCI address.
		devices[i] = &api.Device{ID: fmt.Sprintf("0000:%02x:00.0", i), Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		allocated := &api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{device("/dev/kfd")}}
		for _, id := range container.DevicesIds {
			var index int
			if _, err := fmt.Sscanf(id, "0000:%02x:00.0", &index); err != nil {
				return nil, fmt.Errorf("device %q: %w", id, err)
			}
			render := device(fmt.Sprintf("/dev/dri/renderD%d", firstRenderMinor+index))
			allocated.Devices = append(allocated.Devices, render)
		}
		response.ContainerResponses = append(response.ContainerResponses, allocated)
	}
	return response, nil
}

func device(path string) *api.DeviceSpec {
	return &api.DeviceSpec{HostPath: "/dev/null", ContainerPath: path, Permissions: "rw"}
}

// serveDevicePlugin serves until the kubelet, which clears the folder when it starts, has removed the socket.
func serveDevicePlugin(count int) error {
	path := filepath.Join(api.DevicePluginPath, socket)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{count: count})
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := register(); err != nil {
		return err
	}
	return <-failed
}

func register() error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, request, grpc.WaitForReady(true))
	return err
}
