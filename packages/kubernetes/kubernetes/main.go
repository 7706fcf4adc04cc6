// Command kubernetes is all of Kubernetes' own programs in one: it is each of them under that program's name, as hyperkube
// was. They share nearly all of their code, so one program is a quarter of the seven, on the medium and in memory.
//
// What runs is what each program's own main package runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // how kubectl logs in
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Each program by its name; no name begins with another.
var programs = map[string]func(){
	"kube-apiserver":          server(apiserver.NewAPIServerCommand),
	"kube-controller-manager": server(controllermanager.NewControllerManagerCommand),
	"kube-proxy":              server(proxy.NewProxyCommand),
	"kube-scheduler":          server(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 server(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubeadm": func() {
		withoutFlagsOfOthers()
		kubeadmerrors.HandleError(kubeadm.Run())
	},
	"kubectl": func() {
		withoutFlagsOfOthers()
		// Its verbosity counts before its command is made: plugins and kuberc are read then.
		_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

func main() {
	called := filepath.Base(os.Args[0])
	for name, run := range programs {
		// A copy may have its version in its name: `kubectl-v1.36.4`.
		if strings.HasPrefix(called, name) {
			run()
			return
		}
	}
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "%q is no program of Kubernetes: call it by a name that begins with %s\n", called, strings.Join(names, ", "))
	os.Exit(2)
}

func server(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

// The kubelet's libraries have flags of the whole process, which kubeadm and kubectl would show as theirs.
func withoutFlagsOfOthers() {
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
}
