package conformance

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance/situations"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// runExceptions compares what a fixture excepts from Access with the cloud's file, from which the table of docs/security.md is generated.
func runExceptions(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	found := readFixture(t, newFixture, func(f *Fixture) situations.Exceptions {
		all := situations.Exceptions{cmp.Or(f.SourceRanges.Scope.Name, "plain"): f.exceptionsIn(f.SourceRanges)}
		for name, c := range f.Scopes {
			all[name] = f.exceptionsIn(c)
		}
		return all
	})
	files := readFixture(t, newFixture, func(f *Fixture) fs.FS { return f.Transcripts })
	text, err := fs.ReadFile(files, situations.File)
	require.NoError(t, err, "Fixture.Transcripts has it, embedded")
	have := situations.Exceptions{}
	require.NoError(t, yaml.UnmarshalStrict(text, &have))
	if *Update {
		maps.Copy(have, found)
		text, err := yaml.Marshal(have)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.FromSlash(situations.File), text, 0o644)) //nolint:gosec // a file of the checkout
		return
	}
	for scope, want := range found {
		for name := range want {
			has := func(s situations.Situation) bool { return s.Case == name }
			assert.True(t, slices.ContainsFunc(situations.All(), has), "the table has no row for %s", name)
		}
		assert.Equal(t, want, have[scope], "%s: run the test with -update, and make generate", scope)
	}
}

// exceptionsIn are the cases of Access that do not happen in a scope, or have another end there, with the reason.
func (f *Fixture) exceptionsIn(c FeatureCase) map[string]string {
	s := c.Scope
	all := map[string]string{
		situations.Twice: f.HostBits, situations.ClosedFirst: c.ClosesLater, situations.Meanwhile: s.Except[Passerby],
		situations.Outlasting: s.Unlisted, situations.Full: s.Unfilled, situations.Annotated: s.NoAnnotation,
		situations.FormerPorts: s.OneClosing, situations.Protected: s.Unprotected, situations.OfUDP: s.NotUDP,
		situations.Subnet: s.NoSubnet, situations.Families: s.OneFamily,
	}
	if f.Provider.Features.Internal != registry.Done {
		all[situations.Elsewhere] = "there are no internal load balancers"
	}
	if f.Provider.Features.DualStack != registry.Done {
		all[situations.Families] = "a Service has one family"
	}
	if s.Missing != "" {
		all[situations.Removed] = "it is not made again, and an error or an event says so"
	}
	for _, who := range writers {
		all[situations.RulesOf(string(who))] = s.Except[who]
	}
	maps.DeleteFunc(all, func(_, why string) bool { return why == "" })
	return all
}
