// The control plane of Kubernetes in one binary: it becomes kube-apiserver,
// kube-controller-manager or kube-scheduler according to the name it is called by.
// One binary links what the three share once, and takes one build.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJobs name time zones; a bare machine has no zone files

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	name := filepath.Base(os.Args[0])
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "called as %q; call it as kube-apiserver, kube-controller-manager or kube-scheduler\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
