// Command etcd is the etcd server, unchanged. `go install` refuses the module itself because
// its go.mod has replace lines.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
