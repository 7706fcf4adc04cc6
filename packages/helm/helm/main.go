// Command helm is Helm, for a cluster that does not run yet: charts see the API versions of the file that
// $HELM_API_VERSIONS names, one a line, and no others. Helm's own list is that of its client library, alpha and beta
// versions among them, and no API server serves all of it.
package main

import (
	"fmt"
	"os"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	helmcmd "helm.sh/helm/v4/pkg/cmd"
)

func main() {
	if err := run(); err != nil {
		// Helm has printed its own errors.
		os.Exit(1)
	}
}

func run() error {
	if file := os.Getenv("HELM_API_VERSIONS"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return err
		}
		common.DefaultCapabilities.APIVersions = strings.Fields(string(text))
	}
	cmd, err := helmcmd.NewRootCmd(os.Stdout, os.Args[1:], helmcmd.SetupLogging)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return err
	}
	return cmd.Execute()
}
