// Command registry is distribution's registry with the one storage that a box has, its file system: the drivers of
// clouds are more than half of the program that distribution itself makes.
package main

import (
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	// Its commands end the program themselves when they fail.
	_ = registry.RootCmd.Execute()
}
