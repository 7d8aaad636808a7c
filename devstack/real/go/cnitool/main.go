// cnitool, which runs the commands of the CNI specification as a container runtime does.
package main

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/cnitool/cmd"
)

func main() {
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
