package nodes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestNothingIsKnownOfNodes: what has another controller's provider ID is no node of this cloud, and while there is such a one, the others
// are known by their own IDs alone.
func TestNothingIsKnownOfNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ids     []string
		foreign bool
		none    bool
	}{
		"its own":                            {ids: []string{"fake://1"}},
		"its own in an older form":           {ids: []string{"old-1"}},
		"its own of another kind":            {ids: []string{"fake://a/b"}},
		"none, found by its name":            {ids: []string{""}},
		"another's":                          {ids: []string{"rke2://node-0"}, none: true},
		"another's and one of none":          {ids: []string{"rke2://node-0", ""}, none: true},
		"another's that is out, one of none": {ids: []string{""}, foreign: true, none: true},
		"another's and its own":              {ids: []string{"rke2://node-0", "fake://1"}, foreign: true},
		"another's, none and its own":        {ids: []string{"rke2://node-0", "", "fake://3"}, foreign: true},
	} {
		f := newFixture(nil, machine{id: 1, name: "node-0"}, machine{id: 2, name: "node-1"}, machine{id: 3, name: "node-2"})
		var list []*v1.Node
		for i, id := range c.ids {
			list = append(list, node(fmt.Sprintf("node-%d", i), id))
		}
		ctx := t.Context()
		if c.foreign {
			ctx = contract.WithForeignNodes(ctx)
		}
		found, err := f.Identify(ctx, list)
		require.NoError(t, err, name)
		assert.Equal(t, c.none, found.None, name)
		assert.Len(t, found.Nodes, len(list), name)
	}
}
