package nodes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// newNetworks returns what a provider reads beside instances, and what was read of it.
func newNetworks() (networks *inventory.Inventory[string, string], reads *[]string) {
	reads = &[]string{}
	return inventory.New(inventory.Source[string, string]{
		Kind: "network", ID: func(name string) string { return name },
		List: func(context.Context) ([]string, int, error) {
			*reads = append(*reads, "all")
			return []string{"lan"}, 1, nil
		},
		Get: func(_ context.Context, name string) (string, error) {
			*reads = append(*reads, name)
			return "", &cloudapi.Error{Class: cloudapi.ErrNotFound}
		},
	}), reads
}

// TestDemandsConcernInstances: what a provider reads beside the instances, such as networks, is asked for as ever.
func TestDemandsConcernInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		networks, reads := newNetworks()
		beside := func(ctx context.Context) {
			q := inventory.Query{MaxAge: time.Hour, MaxMissAge: time.Hour}
			_, err := networks.All(ctx, q)
			require.NoError(t, err)
			_, err = networks.Get(ctx, "lan", q)
			require.NoError(t, err)
			_, err = networks.Get(ctx, "wan", q)
			require.ErrorIs(t, err, cloudapi.ErrNotFound)
		}
		f := newFixture(func(c *description, s *source) {
			attested(c, s)
			c.Search = func(ctx context.Context, _ *v1.Node) (Search[int, machine], error) {
				beside(ctx)
				return Search[int, machine]{IDs: []int{web.id}}, nil
			}
			c.Verify = func(ctx context.Context, _ *v1.Node, _ machine) (string, error) {
				beside(ctx)
				return "", nil
			}
		}, web)
		for _, demand := range []func(time.Time) evidence.Demand{
			func(time.Time) evidence.Demand { return evidence.Demand{} },
			func(now time.Time) evidence.Demand { return evidence.RollCall(now).FromMemory() },
			func(now time.Time) evidence.Demand { return evidence.Early(now, time.Second) },
			evidence.Proof, evidence.RollCall,
			func(now time.Time) evidence.Demand { return evidence.RollCall(now).Among(10) },
		} {
			time.Sleep(time.Minute)
			ctx := evidence.With(t.Context(), demand(time.Now()))
			before := f.cloud.reads + f.cloud.lists
			exists, err := f.InstanceExists(ctx, node("web", ""))
			if evidence.From(ctx).MemoryOnly {
				require.ErrorIs(t, err, evidence.ErrUnread)
				continue
			}
			require.NoError(t, err)
			assert.True(t, exists)
			assert.Equal(t, before+1, f.cloud.reads+f.cloud.lists, "the instance is read")
			a, _, err := f.AttestInstance(ctx, node("web", "fake://1"))
			require.NoError(t, err)
			assert.Equal(t, contract.Attested{Names: []string{web.name}, Addresses: contract.AttestedAddresses(web.address)}, a)
		}
		assert.Equal(t, []string{"all", "wan"}, *reads)

		beside(inventory.NotBefore(t.Context(), time.Now()))
		assert.Equal(t, []string{"all", "wan", "all", "wan"}, *reads, "but a provider itself can demand new reads of all")
	})
}
