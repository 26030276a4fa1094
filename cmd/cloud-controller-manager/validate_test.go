package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// TestValidateOfEachCloud: validate says of each Service what its cloud's controller would say, and names the field or the annotation.
func TestValidateOfEachCloud(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCallsOfPages$")
	args := []string{"validate", "--cloud-provider=all", "-o=json", "-f=testdata/validate.yaml"}
	cmd.Env = append(os.Environ(), callVariable+"="+strings.Join(args, "\n"))
	text, err := cmd.Output()
	if _, refused := errors.AsType[*exec.ExitError](err); !refused {
		require.NoError(t, err)
	}
	var said struct {
		Results []struct {
			Service, Cloud, Outcome string
			Findings                []struct{ Message string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &said), "%s", text)
	got := map[string]map[string]string{}
	for _, r := range said.Results {
		places := map[string]bool{}
		for _, f := range r.Findings {
			place, _, _ := strings.Cut(f.Message, ": ")
			places[place] = true
		}
		if r.Outcome != "served" {
			if got[r.Cloud] == nil {
				got[r.Cloud] = map[string]string{}
			}
			got[r.Cloud][strings.TrimPrefix(r.Service, "shop/")] = r.Outcome + ": " + strings.Join(slices.Sorted(maps.Keys(places)), "; ")
		}
	}
	for _, p := range registry.Linked().Providers() {
		if p.Features.LoadBalancers != registry.Done {
			continue
		}
		expected, err := expectations.Read(root, p)
		require.NoError(t, err)
		assert.Equal(t, expected.Validate, got[p.Name], p.Name)
	}
}
