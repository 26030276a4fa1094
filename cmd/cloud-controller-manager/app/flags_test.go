package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// shape is the configuration of the toy clouds.
type shape struct {
	Size    int
	Names   []string
	Wide    bool
	Account string
}

// rivals are two clouds that share a flag and an environment variable, with different types and defaults.
func rivals(into *shape) (square, round registry.Provider) {
	describe := func(name string, table schema.Options[shape]) registry.Provider {
		return provider(name, func(p *registry.Provider) {
			p.Title, p.Options = strings.ToUpper(name[:1])+name[1:]+" Cloud", table.Rows()
			p.Validate = func(in registry.Inputs) (err error) {
				*into, err = table.Parse(in.Sources)
				return err
			}
		})
	}
	square = describe("square", schema.Options[shape]{
		schema.IntOption(
			func(s *shape) *int { return &s.Size },
			schema.OptionRow{Flag: "size", Env: "TOY_SIZE", Spec: schema.Spec{Default: "4", Help: "Corners."}},
		),
		schema.BoolOption(func(s *shape) *bool { return &s.Wide }, schema.OptionRow{Flag: "wide", Spec: schema.Spec{Help: "Twice as wide."}}),
		schema.StringOption(
			func(s *shape) *string { return &s.Account },
			schema.OptionRow{Flag: "square-account", Env: "TOY_ACCOUNT", Spec: schema.Spec{Help: "Account."}},
		),
	})
	round = describe("round", schema.Options[shape]{
		schema.ListOption(
			func(s *shape) *[]string { return &s.Names },
			schema.OptionRow{Flag: "size", Env: "TOY_SIZE", Repeatable: true, Spec: schema.Spec{Default: "small,large", Help: "Circles."}},
		),
		schema.StringOption(
			func(s *shape) *string { return &s.Account },
			schema.OptionRow{Flag: "wide", Spec: schema.Spec{Default: "no", Help: "How wide."}},
		),
	})
	return square, round
}

// TestSharedFlags: a flag or variable of two clouds has the type and the default of the running one.
func TestSharedFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  string
		want shape
		err  string
	}{
		"defaults of one":       {args: []string{"--cloud-provider=square"}, want: shape{Size: 4}},
		"defaults of the other": {args: []string{"--cloud-provider=round"}, want: shape{Names: []string{"small", "large"}, Account: "no"}},
		"a number":              {args: []string{"--cloud-provider=square", "--size=6", "--wide"}, want: shape{Size: 6, Wide: true}},
		"a list": {
			args: []string{"--size=a", "--cloud-provider", "round", "--size=b", "--wide=very"},
			want: shape{Names: []string{"a", "b"}, Account: "very"},
		},
		"one variable":             {args: []string{"--cloud-provider=square"}, env: "7", want: shape{Size: 7}},
		"the same variable":        {args: []string{"--cloud-provider=round"}, env: "x,y", want: shape{Names: []string{"x", "y"}, Account: "no"}},
		"what is the other's kind": {args: []string{"--cloud-provider=square", "--size=a"}, err: `flag --size: "a" is not a whole number`},
		"a switch elsewhere":       {args: []string{"--cloud-provider=round", "--wide"}, err: "flag needs an argument: --wide; see --help"},
		"the last cloud counts": {
			args: []string{"--cloud-provider=square", "--cloud_provider=round", "--size=a"},
			want: shape{Names: []string{"a"}, Account: "no"},
		},
		"no cloud":                    {args: []string{"--wide"}, err: "--cloud-provider is missing; linked providers: round, square"},
		"a cloud that does not exist": {args: []string{"--cloud-provider=oval", "--size=a"}, err: `unknown --cloud-provider "oval"`},
		"a flag of nobody":            {args: []string{"--cloud-provider=square", "--deep"}, err: "unknown flag: --deep; see --help"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("TOY_SIZE", c.env)
			}
			var got shape
			square, round := rivals(&got)
			err := check(t, newManager(t, square, round), c.args...)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// executed runs the command and returns its output.
func executed(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var unused shape
	square, round := rivals(&unused)
	m := newManager(t, square, round)
	m.args = args
	cmd, err := m.command(nil)
	require.NoError(t, err)
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestHelpGroupsFlags: help has a group for each cloud, including flags that others share.
func TestHelpGroupsFlags(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"--cloud-provider=square", "--help"}, {"--cloud-provider=round", "--help"}} {
		out, err := executed(t, args...)
		require.NoError(t, err)
		_, rest, ok := strings.Cut(out, "\nRound Cloud flags:\n")
		require.True(t, ok, out)
		round, square, ok := strings.Cut(rest, "\nSquare Cloud flags:\n")
		require.True(t, ok, out)
		for text, want := range map[string][]string{
			round:  {"--size stringArray", "Circles.", "How wide."},
			square: {"--size string ", "Corners.", "Twice as wide.", "--square-account"},
		} {
			for _, w := range want {
				assert.Contains(t, text, w)
			}
		}
		assert.NotContains(t, round, "Corners.")
	}
}

// TestCommandsHaveTheFlagsOfTheirCloud: help shows them below the command's own.
func TestCommandsHaveTheFlagsOfTheirCloud(t *testing.T) {
	for _, command := range []string{"validate", "plan", "orphans", "handover", "preflight"} {
		out, err := executed(t, command, "--cloud-provider=square", "--help")
		require.NoError(t, err)
		own, flags, ok := strings.Cut(out, "\nSquare Cloud flags:\n")
		require.True(t, ok, out)
		assert.Contains(t, own, "--cloud-provider")
		assert.NotContains(t, own, "--square-account")
		assert.Contains(t, flags, "Corners.")
		assert.NotContains(t, out, "Circles.")

		out, err = executed(t, command, "--help")
		require.NoError(t, err)
		assert.Contains(t, out, "With --cloud-provider (round, square) also the flags of that cloud, and its environment variables.")
		assert.NotContains(t, out, "--size")

		_, err = executed(t, command, "--cloud-provider=square", "--size=6", "--wide", "--square-account=x")
		require.Error(t, err, "these toys cannot be opened, and no file is named")
		assert.NotContains(t, err.Error(), "flag", "the cloud's flags are parsed")

		_, err = executed(t, command, "--cloud-provider=round", "--square-account=x")
		require.EqualError(t, err, "--square-account is a flag of square, and this is --cloud-provider=round; leave it out")
		_, err = executed(t, command, "--square-account=x")
		require.ErrorContains(t, err, "--square-account is a flag of square: --cloud-provider is missing; linked providers: round, square")
	}
}
