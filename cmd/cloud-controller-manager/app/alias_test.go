package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestAliasOfAProvider: the program accepts the name of the cloud's own controller, but its parts see only the canonical name.
func TestAliasOfAProvider(t *testing.T) { //nolint:paralleltest // the framework has global feature gates
	aliased := func(p *registry.Provider) { p.Aliases = []string{"external-alpha"} }
	m := newManager(t, provider("alpha", aliased), provider("beta", nil))
	require.NoError(t, check(t, m, "--cloud-provider=external-alpha"))
	assert.Equal(t, "alpha", m.options.KubeCloudShared.CloudProvider.Name)

	chosen := choose(m.providers, []string{"plan", "--cloud-provider", "external-alpha"})
	require.NoError(t, chosen.err)
	assert.Equal(t, "alpha", chosen.provider.Name, "its flags are those of the command")
	assert.Equal(t, []string{"alpha or external-alpha", "beta"}, chosen.spellings())

	// plan, preflight and orphans open their cloud like this.
	c := &cloudCommand{providers: m.providers, cmd: &cobra.Command{}, provider: "external-alpha"}
	p, _, err := c.inputs()
	require.NoError(t, err)
	assert.Equal(t, "alpha", p.Name)
}

// TestAliasForValidate: validate accepts aliases too.
func TestAliasForValidate(t *testing.T) { //nolint:paralleltest // cobra writes to global variables
	providers := &registry.Registry{}
	for _, p := range colours().Providers() {
		if p.Name == "alpha" {
			p.Aliases = []string{"external-alpha"}
		}
		require.NoError(t, providers.Add(p))
	}
	said := map[string]string{}
	for _, name := range []string{"alpha", "external-alpha"} {
		args := []string{"-f", "-", "--cloud-provider=" + name}
		cmd, out := validateCommand(choose(providers, args)), &bytes.Buffer{}
		cmd.SetArgs(args)
		cmd.SetIn(strings.NewReader(manifests))
		cmd.SetOut(out)
		cmd.SetErr(out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		require.Error(t, cmd.ExecuteContext(t.Context()))
		said[name] = out.String()
	}
	assert.Contains(t, said["alpha"], "lb-colour")
	assert.Equal(t, said["alpha"], said["external-alpha"])
}
