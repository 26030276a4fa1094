package nodes

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

func attested(c *description, _ *source) {
	c.Attested = func(m machine) contract.Attested {
		return contract.Attested{Names: []string{m.name}, Addresses: contract.AttestedAddresses(m.address)}
	}
}

// TestAttest: what the cloud knows of an instance counts for the node alone whose instance it is, as verified by the same read.
func TestAttest(t *testing.T) {
	t.Parallel()
	f := newFixture(attested, web)
	a, why, err := f.AttestInstance(t.Context(), node("web", "fake://1"))
	require.NoError(t, err)
	assert.Empty(t, why)
	assert.Equal(t, contract.Attested{Names: []string{web.name}, Addresses: contract.AttestedAddresses(web.address)}, a)
	assert.Equal(t, 1, f.cloud.reads+f.cloud.lists)
	for id, want := range map[string]string{"fake://1": "the machine is named web", "fake://9": "machine 9 does not exist", "": "is malformed"} {
		a, why, err = f.AttestInstance(t.Context(), node("db", id))
		require.NoError(t, err)
		assert.Contains(t, why, want)
		assert.Empty(t, a)
	}
	f = newFixture(func(c *description, _ *source) { c.Unattested = "its guest says them" }, web)
	_, why, err = f.AttestInstance(t.Context(), node("web", "fake://1"))
	require.NoError(t, err)
	assert.Equal(t, "its guest says them", why)
	assert.Zero(t, f.cloud.reads+f.cloud.lists)
	f = newFixture(nil, web)
	_, why, _ = f.AttestInstance(t.Context(), node("web", "fake://1"))
	assert.Equal(t, "the cloud alone does not know what names and addresses a machine has", why)
}

// TestAttestedAfresh: an answer from before the time that is demanded does not count, and in an outage there is none.
func TestAttestedAfresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(attested, web, off)
		require.NoError(t, f.CheckAPI(t.Context()))
		f.cloud.mu.Lock()
		f.cloud.machines[1] = machine{id: 1, name: "web", address: "10.0.0.99"}
		f.cloud.mu.Unlock()
		time.Sleep(time.Second)
		since := func(at time.Time) (contract.Attested, error) {
			a, why, err := f.AttestInstance(evidence.With(t.Context(), evidence.RollCall(at)), node("web", "fake://1"))
			assert.Empty(t, why)
			return a, err
		}
		a, err := since(time.Now().Add(-time.Second))
		require.NoError(t, err)
		assert.Equal(t, contract.AttestedAddresses(web.address), a.Addresses, "the listing is new enough")
		a, err = since(time.Now())
		require.NoError(t, err)
		assert.Equal(t, contract.AttestedAddresses("10.0.0.99"), a.Addresses)
		time.Sleep(time.Second)
		f.cloud.readErr, f.cloud.listErr = failure, failure
		_, err = since(time.Now())
		require.ErrorIs(t, err, failure)
	})
}
