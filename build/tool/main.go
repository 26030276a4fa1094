// Command tool builds a program and shows how far it is, or takes one that is already on this machine. The Makefile runs it.
//
//	tool build   -name NAME [-C FOLDER] -o FILE [-tags TAGS] [-ldflags FLAGS] [-demo] PACKAGE…
//	tool helm    -o FILE
//	tool kubectl -o FILE
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/anyccm/cloud-controller-manager/build/gobuild"
	"github.com/anyccm/cloud-controller-manager/test/controlplane/envtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, w io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("say what to do: tool build …, tool helm … or tool kubectl …")
	}
	fs := flag.NewFlagSet("tool "+args[0], flag.ContinueOnError)
	b := gobuild.Build{Env: gobuild.Env()}
	fs.StringVar(&b.Name, "name", args[0], "what the progress calls the program")
	fs.StringVar(&b.Dir, "C", "", "folder of the module")
	fs.StringVar(&b.Output, "o", "", "file to write, or the folder for several programs")
	tags, ldflags := fs.String("tags", "", "build tags"), fs.String("ldflags", "-s -w", "flags of the linker")
	demo := fs.Bool("demo", false, "build programs of the demo, quickly where nothing else has to be built for it")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	b.Flags = []string{"-trimpath", "-tags=" + *tags, "-ldflags=" + *ldflags}
	if *demo && isInstalled(ctx) {
		b.Flags = append(b.Flags, gobuild.FastBuildFlags()...)
	}
	var err error
	if b.Output, err = filepath.Abs(b.Output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	switch args[0] {
	case "build":
		if fs.NArg() == 0 {
			return fmt.Errorf("tool build: name the packages")
		}
		b.Packages = fs.Args()
		return b.Run(ctx, w)
	case "helm":
		return helm(ctx, b, w)
	case "kubectl":
		return kubectl(ctx, b, w)
	}
	return fmt.Errorf("unknown %q: there are build, helm and kubectl", args[0])
}

// isInstalled reports whether Helm and a control plane are on this machine. Where they are built, the demo's programs share most of what
// they consist of with them, and so they are built alike.
func isInstalled(ctx context.Context) bool {
	_, version := findProgram(ctx, "helm", helmVersionArguments...)
	return helmFits(version) && envtest.Folder() != ""
}

var helmVersionArguments = []string{"version", "--template={{.Version}}"}

// helm takes the one on the PATH if its version fits, else it builds the pinned one.
func helm(ctx context.Context, b gobuild.Build, w io.Writer) error {
	if path, version := findProgram(ctx, "helm", helmVersionArguments...); helmFits(version) {
		fmt.Fprintf(w, "Using helm %s: %s\n", version, path)
		return writeScript(b.Output, path)
	}
	fmt.Fprintln(w, "Building helm from source; this happens once.")
	b.Dir, b.Packages = filepath.Join("build", "helm"), []string{"helm.sh/helm/v4/cmd/helm"}
	return b.Run(ctx, w)
}

// kubectl takes the one on the PATH if its version fits, else it builds one of the product's version.
func kubectl(ctx context.Context, b gobuild.Build, w io.Writer) error {
	if path, answer := findProgram(ctx, "kubectl", "version", "--client"); kubectlFits(answer) {
		fmt.Fprintf(w, "Using kubectl: %s\n", path)
		return writeScript(b.Output, path)
	}
	fmt.Fprintln(w, "Building kubectl from source; this happens once.")
	b.Dir, b.Packages = filepath.Join("build", "kubectl"), []string{"."}
	return b.Run(ctx, w)
}

// findProgram returns the path of a program on the PATH and what it answers to the arguments; nothing if it is not there.
func findProgram(ctx context.Context, name string, args ...string) (path, answer string) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", ""
	}
	out, err := exec.CommandContext(ctx, path, args...).Output() //nolint:gosec // the user's own PATH
	if err != nil {
		return "", ""
	}
	return path, strings.TrimSpace(string(out))
}

// helmVersion: the chart's tests compare what is rendered byte by byte, which major versions may differ in.
var helmVersion = regexp.MustCompile(`^v4\.\d+\.\d+(\+\S+)?$`)

func helmFits(version string) bool { return helmVersion.MatchString(version) }

// kubectlVersion: the pages use nothing that was not there for years.
var kubectlVersion = regexp.MustCompile(`(?m)^Client Version: v1\.(3\d|[4-9]\d)\.\d+`)

func kubectlFits(answer string) bool { return kubectlVersion.MatchString(answer) }

// writeScript writes a script that runs another program, so that make sees a new file and nothing is copied.
func writeScript(file, path string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // programs are for everybody
		return fmt.Errorf("making the folder of programs: %w", err)
	}
	quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	_ = os.Remove(file)                                                                              // a running program cannot be overwritten
	if err := os.WriteFile(file, []byte("#!/bin/sh\nexec "+quoted+" \"$@\"\n"), 0o755); err != nil { //nolint:gosec // a program
		return fmt.Errorf("referring to %s: %w", path, err)
	}
	return nil
}
