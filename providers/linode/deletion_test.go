package linode

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/linode/linodego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestMoves: a Service names another NodeBalancer, and back; what we made goes, what the user made stays.
func TestMoves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotation, value string
		kept              bool
	}{
		"the old one goes": {annotationPreserve, "false", false}, "the old one is preserved": {annotationPreserve, "true", true},
		"the old one is retained": {contract.AnnotationRetain, "true", true}, "the old one is protected": {contract.AnnotationProtect, "true", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", map[string]string{c.annotation: c.value}, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			first := s.Annotations[annotationRecord]
			users := w.users("users-own")
			w.serves(users, 30080)
			s.Annotations[annotationID] = strconv.Itoa(users)
			w.Apply(s)
			s, status := w.ensure(s)
			assert.Equal(t, strconv.Itoa(users), s.Annotations[annotationRecord])
			balancers := w.sim.NodeBalancers()
			assert.Equal(t, balancers[len(balancers)-1].IPv4, status.Ingress[0].IP)
			require.Len(t, balancers, map[bool]int{false: 1, true: 2}[c.kept])
			if c.kept {
				assert.Equal(t, first, strconv.Itoa(balancers[0].ID))
				return
			}
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			require.Len(t, w.sim.NodeBalancers(), 1, "the user made it")
			assert.Contains(t, strings.Join(w.Events(), "\n"), "is kept: nothing that only a controller can write")
		})
	}
	t.Run("an ID that leads nowhere", func(t *testing.T) {
		t.Parallel()
		w := lbWorld(t, 1)
		s := service("web", map[string]string{annotationID: "99999"}, port("http", 80, 30080))
		w.Apply(s)
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.ErrorContains(t, err, `nodebalancer-id: "99999" is not the ID of a NodeBalancer that the token may read`)
		assert.Empty(t, w.sim.NodeBalancers(), "none is made in its place")
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning LoadBalancerConfigError annotation "+annotationID)
	})
}

// TestDeletion: what is ours goes, and all that is the user's stays.
func TestDeletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		prepare     func(w *world, nb int)
		balancers   int
		firewalls   int
		reserved    bool
		refused     string
	}{
		"all of it":                {map[string]string{annotationFirewallACL: allowACL, annotationReservedIPv4: reservedIP}, nil, 0, 0, true, ""},
		"with its address":         {map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, mayGo, 0, 0, false, ""},
		"with the operator's":      {map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, nil, 0, 0, true, ""},
		"preserved":                {map[string]string{annotationPreserve: "true", annotationFirewallACL: allowACL}, nil, 1, 1, true, ""},
		"preserved or not":         {map[string]string{annotationPreserve: "yes"}, nil, 1, 0, true, annotationPreserve},
		"released or not":          {map[string]string{annotationRetainReservedIPv4: "yes"}, nil, 1, 0, true, annotationRetainReservedIPv4},
		"a fault in another place": {map[string]string{annotationPreserve: "false", annotationCheckType: "tea"}, nil, 0, 0, true, ""},
		"the user's firewall":      {nil, func(w *world, nb int) { w.sim.AddFirewall("users", nb) }, 0, 1, true, ""},
		"deleted behind our back": {
			map[string]string{annotationFirewallACL: allowACL},
			func(w *world, nb int) { _ = w.api.deleteNodeBalancer(w.T.Context(), nb) }, 0, 0, true, "",
		},
		"an address of another kind": {map[string]string{annotationRetainReservedIPv4: "false"}, nil, 0, 0, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			annotations := maps.Clone(c.annotations)
			if annotations == nil {
				annotations = map[string]string{}
			}
			if c.refused != "" {
				delete(annotations, c.refused)
			}
			delete(annotations, annotationCheckType) // a fault comes after the creation
			s := service("web", annotations, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			maps.Copy(s.Annotations, c.annotations)
			if c.prepare != nil {
				c.prepare(w, w.sim.NodeBalancers()[0].ID)
			}
			w.restart()
			err := w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused, "in doubt nothing is deleted")
			} else {
				require.NoError(t, err)
			}
			assert.Len(t, w.sim.NodeBalancers(), c.balancers)
			assert.Len(t, w.sim.Firewalls(), c.firewalls)
			assert.Equal(t, c.reserved, w.sim.Reserved(reservedIP))
		})
	}
}

// mayGo marks the reserved address as one that may go with its Service.
func mayGo(w *world, _ int) { w.sim.Reserve(reservedIP, "anyccm:test-cluster") }

// TestReleaseIsNotForgotten: while a release fails the NodeBalancer stays, because nothing else leads to the address.
func TestReleaseIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	mayGo(w, 0)
	s := service("web", map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	for _, operation := range []string{"DELETE /v4/networking/reserved/ips/{id}", "DELETE /v4/nodebalancers/{id}"} {
		id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: operation})
		require.NoError(t, err)
		require.Error(t, w.Remove(w.loadBalancers, "kubernetes", s))
		assert.Len(t, w.sim.NodeBalancers(), 1)
		w.server.RemoveFault(id)
		w.restart()
	}
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	assert.Empty(t, w.sim.NodeBalancers())
	assert.False(t, w.sim.Reserved(reservedIP))

	// An address that the operator keeps for others stays, and the Service tells so.
	w = lbWorld(t, 1)
	s = service("web", map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	assert.True(t, w.sim.Reserved(reservedIP))
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Normal LoadBalancerRetained the address "+reservedIP+" stays reserved: no controller reserved it")
}

// users makes a NodeBalancer that no controller made.
func (w *world) users(label string) int {
	w.T.Helper()
	nb, err := w.api.createNodeBalancer(w.T.Context(), &nodeBalancerRequest{
		Label: label, Region: linodesim.Region, Type: "common", Tags: []string{}, Configs: []configFields{},
	})
	require.NoError(w.T, err)
	return nb.ID
}

// serves makes the NodeBalancer of a user send its traffic to the first node at a node port.
func (w *world) serves(id, nodePort int) {
	w.T.Helper()
	c, err := w.api.createConfig(w.T.Context(), id, configFields{
		Port: 80, Protocol: "tcp", Algorithm: "roundrobin", Check: "none", CheckInterval: 5, CheckTimeout: 3, CheckAttempts: 2,
	})
	require.NoError(w.T, err)
	private := ""
	for _, a := range w.nodes[0].Status.Addresses {
		if strings.HasPrefix(a.Address, "192.168.") {
			private = a.Address
		}
	}
	_, err = w.api.addNode(w.T.Context(), id, c.ID, nodeOptions{
		Address: fmt.Sprintf("%s:%d", private, nodePort), Label: "one", Weight: 100, Mode: modeAccept,
	})
	require.NoError(w.T, err)
}

// TestUsersNodeBalancer outlives the annotation that names it, whether that goes or names another one.
func TestUsersNodeBalancer(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{true, false} {
		w := lbWorld(t, 1)
		x, y := w.users("mine-x"), w.users("mine-y")
		w.serves(x, 30080)
		w.serves(y, 30080)
		s := service("web", map[string]string{annotationID: strconv.Itoa(x)}, port("http", 80, 30080))
		w.Apply(s)
		s, _ = w.ensure(s)
		if moved {
			s.Annotations[annotationID] = strconv.Itoa(y)
		} else {
			delete(s.Annotations, annotationID)
		}
		w.Apply(s)
		s, _ = w.ensure(s)
		require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
		left := []int{}
		for _, nb := range w.sim.NodeBalancers() {
			left = append(left, nb.ID)
		}
		assert.Equal(t, []int{x, y}, left, "moved: %v", moved)
	}
}

// TestNothingIsDeletedOnAnOldPicture: what became somebody else's since the last look stays.
func TestNothingIsDeletedOnAnOldPicture(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	nb, f := w.sim.NodeBalancers()[0], w.sim.Firewalls()[0]
	w.sim.ChangeNodeBalancer(nb.ID, func(nb *linodesim.NodeBalancer) { nb.Tags = []string{"anyccm:another"} })
	_, err := w.loadBalancers.owners.reread(t.Context(), s, nb.ID)
	require.Error(t, err, "it is read again right before")
	assert.Len(t, w.sim.NodeBalancers(), 1)
	w.sim.ChangeFirewall(f.ID, func(f *linodesim.Firewall) { f.Tags = []string{"anyccm:another"} })
	was := &linodego.Firewall{ID: f.ID}
	require.NoError(t, w.loadBalancers.firewalls.drop(t.Context(), s, was, &nodeBalancer{ID: nb.ID}))
	require.Len(t, w.sim.Firewalls(), 1)
	assert.Empty(t, w.sim.Firewalls()[0].Devices())
}

// TestNoOrphanIsDeletedOnAnOldPicture: what was listed as an orphan, and got another name, another cluster, another use or a Service
// since, stays.
func TestNoOrphanIsDeletedOnAnOldPicture(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(w *world, nb, f int, s *v1.Service)
		left    int
	}{
		"nothing happened": {func(*world, int, int, *v1.Service) {}, 0},
		"of another cluster": {func(w *world, nb, f int, _ *v1.Service) {
			w.sim.ChangeNodeBalancer(nb, func(nb *linodesim.NodeBalancer) { nb.Tags = []string{"anyccm:another"} })
			w.sim.ChangeFirewall(f, func(f *linodesim.Firewall) { f.Tags = []string{"anyccm:another"} })
		}, 2},
		"with another label": {func(w *world, nb, f int, _ *v1.Service) {
			w.sim.ChangeNodeBalancer(nb, func(nb *linodesim.NodeBalancer) { nb.Label = "kept" })
			w.sim.ChangeFirewall(f, func(f *linodesim.Firewall) { f.Label = "kept" })
		}, 2},
		"of a Service": {func(w *world, _, _ int, s *v1.Service) {
			_, err := w.Kube.CoreV1().Services(s.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
			require.NoError(w.T, err)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			nb, f := w.sim.NodeBalancers()[0].ID, w.sim.Firewalls()[0].ID
			w.Withdraw(s)
			require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
			devices, _, err := listAll[linodego.FirewallDevice](t.Context(), w.api, "devices", fmt.Sprintf("networking/firewalls/%d/devices", f), "")
			require.NoError(t, err)
			require.NoError(t, w.api.sdk.DeleteFirewallDevice(t.Context(), f, devices[0].ID))
			w.restart()
			orphans, err := w.Orphans(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, orphans, 2)
			s.ResourceVersion = ""
			c.prepare(w, nb, f, s)
			for _, o := range orphans {
				err := w.DeleteOrphan(t.Context(), o)
				if c.left == 0 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, errChanged)
				}
			}
			assert.Len(t, w.sim.NodeBalancers(), c.left/2)
			assert.Len(t, w.sim.Firewalls(), c.left/2)
		})
	}
}
