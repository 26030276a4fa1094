package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Output formats for programs; each command also has one for people.
const (
	formatJSON = "json"
	formatYAML = "yaml"

	humanText  = "text"
	humanTable = "table"
)

// Exit statuses.
const (
	// exitFailed: findings or any other error.
	exitFailed = 1
	// exitUsage: a malformed command; nothing was tried.
	exitUsage = 2
	// exitChanges: a plan with changes, if requested.
	exitChanges = 2
)

// usageError is a fault in the program's arguments.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// usageArgs turns errors about arguments into usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usage(check(cmd, args)) }
}

// exitStatus returns the exit status for an error.
func exitStatus(err error) int {
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, errChanges) {
		return exitChanges
	}
	return exitFailed
}

// addOutputFlag declares the output format; human is the one for people.
func addOutputFlag(cmd *cobra.Command, output *string, human string) {
	cmd.Flags().StringVarP(output, "output", "o", human, "Output format: "+human+", json or yaml.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{human, formatJSON, formatYAML}, cobra.ShellCompDirectiveNoFileComp))
}

func checkOutput(output, human string) error {
	if !slices.Contains([]string{human, formatJSON, formatYAML}, output) {
		return usage(fmt.Errorf("--output %q: use %s, json or yaml", output, human))
	}
	return nil
}

func printFor(w io.Writer, format string, v any) error {
	if format == formatJSON {
		return printJSON(w, v)
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// printJSON does not escape comparison operators, because the output is not HTML.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (c choice) completeProviders(cmd *cobra.Command, more ...string) {
	_ = cmd.RegisterFlagCompletionFunc("cloud-provider", func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		var fitting []string
		for _, name := range append(c.providers.Names(), more...) {
			if strings.HasPrefix(name, begun) {
				fitting = append(fitting, name)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	})
}

// countOf returns a number with its noun.
func countOf(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
