package registry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func complete() Provider {
	p := described("alpha")
	p.Title, p.Stability = "Alpha", "beta"
	p.Permissions = []Permission{{For: "nodes", Needs: []string{"read"}}}
	p.Options = []schema.OptionRow{
		{Env: "A_TOKEN", Required: true, Spec: schema.Spec{Kind: schema.KindSecret}},
		{Env: "A_KEY_PATH", Spec: schema.Spec{Kind: schema.KindString}},
		{FileKey: "[Global] zone", Spec: schema.Spec{Kind: schema.KindString}},
	}
	p.Installation = Installation{
		Credentials: []Credential{
			{Name: "token", Key: "token", Env: "A_TOKEN_FILE", Help: "Token."},
			{Name: "key", Key: "key.pem", Env: "A_KEY_PATH", Optional: true, Help: "Key."},
			{Name: "other", Key: "other", Help: "The cloud config names its path."},
		},
		Config: CloudConfig{Format: INI, File: "a.conf", Example: "Global: {zone: a}"},
		Secret: "alpha", MaxSlimMiB: 1, Migration: Migration{Credentials: "a", ClusterName: "b", Written: "c"},
	}
	return p
}

// TestMissing: each thing that a description lacks or contradicts is named, and a complete one lacks nothing.
func TestMissing(t *testing.T) {
	t.Parallel()
	require.NoError(t, complete().Missing())
	for want, change := range map[string]func(*Provider){
		"provider alpha: Title is empty":                                           func(p *Provider) { p.Title = "" },
		`Stability "done" is not one of alpha, beta, stable`:                       func(p *Provider) { p.Stability = "done" },
		"Permissions are empty":                                                    func(p *Provider) { p.Permissions = nil },
		"Installation.Secret is empty":                                             func(p *Provider) { p.Installation.Secret = "" },
		"Installation.MaxSlimMiB is empty":                                         func(p *Provider) { p.Installation.MaxSlimMiB = 0 },
		"Installation.Migration.Written is empty":                                  func(p *Provider) { p.Installation.Migration.Written = "" },
		"Installation.Migration.ClusterName is empty":                              func(p *Provider) { p.Installation.Migration.ClusterName = "" },
		"Installation.Migration.Credentials is empty":                              func(p *Provider) { p.Installation.Migration.Credentials = "" },
		`credential "Token": Name must be a lower-case letter`:                     func(p *Provider) { p.Installation.Credentials[0].Name = "Token" },
		`credential key: its name or its key "token" is taken`:                     func(p *Provider) { p.Installation.Credentials[1].Key = "token" },
		"credential cloudConfig: its name or its key":                              func(p *Provider) { p.Installation.Credentials[1].Name = ConfigCredential },
		"credential key: Key must be a key of a Secret":                            func(p *Provider) { p.Installation.Credentials[1].Key = "a/b" },
		"no option reads the environment variable A_OTHER":                         func(p *Provider) { p.Installation.Credentials[1].Env = "A_OTHER" },
		"no credential serves the required option environment variable A_TOKEN":    func(p *Provider) { p.Installation.Credentials = p.Installation.Credentials[1:] },
		"Installation.Config has no Format, but options have file keys":            func(p *Provider) { p.Installation.Config = CloudConfig{} },
		"Installation.Config lacks File, which must be a key of a Secret, or":      func(p *Provider) { p.Installation.Config.File = "" },
		`Installation.Config is INI, but file keys are not of the form`:            func(p *Provider) { p.Options[2].FileKey = "zone" },
		`Installation.Config is YAML, but file keys are of the form`:               func(p *Provider) { p.Installation.Config.Format = YAML },
		"options that are secrets have file keys; set Installation.Config.HoldsCr": func(p *Provider) { p.Options[0].FileKey = "[Global] token" },
	} {
		p := complete()
		change(&p)
		err := p.Missing()
		require.ErrorContains(t, err, want)
		assert.Len(t, schema.Problems(err), 1, want)
	}
}
