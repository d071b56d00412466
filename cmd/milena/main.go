// Command milena is the one binary: broker, demo and client commands.
package main

import (
	"os"

	"milena/internal/cli"
)

// version is set when a release is built.
var version = "dev"

func main() { os.Exit(cli.Main(version)) }
