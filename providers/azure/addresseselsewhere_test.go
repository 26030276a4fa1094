package azure

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// otherPIP is the ID of a public address in the other resource group.
func otherPIP(name string) string {
	return strings.Replace(pipID(name), "/resourceGroups/"+azuresim.Group+"/", "/resourceGroups/"+azuresim.OtherGroup+"/", 1)
}

// webElsewhere is the Service default/web with its public address in another resource group.
func webElsewhere() *v1.Service {
	return webService(map[string]string{annotationGroup: azuresim.OtherGroup})
}

// interrupt refuses writes from the n-th on.
func (w *world) interrupt(n int) {
	w.Helper()
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Writes: true, From: n})
	require.NoError(w, err)
}

// unmark takes the mark of the cluster from an address, as it is where Azure's own controller made it.
func (w *world) unmark(id string) {
	w.Helper()
	require.NoError(w, w.sim.Change(id, func(d map[string]any) {
		tags := tagsOf(d)
		delete(tags, clusterTag)
		d["tags"] = asDoc(tags)
	}))
}

// TestAddressGroupChangesBeforeARestart: whenever the program ends after the annotation with the resource group has changed, the next one
// finds the former address.
func TestAddressGroupChangesBeforeARestart(t *testing.T) {
	t.Parallel()
	leave := func(s *v1.Service) { delete(s.Annotations, annotationGroup) }
	serve := func(w *world, s *v1.Service) error {
		_, err := w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes)
		return err
	}
	for name, c := range map[string]struct {
		change func(*v1.Service)
		do     func(w *world, s *v1.Service) error
	}{
		"served":   {leave, serve},
		"internal": {func(s *v1.Service) { leave(s); s.Annotations[annotationInternal] = "true" }, serve},
		"removed": {leave, func(w *world, s *v1.Service) error {
			return w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, w.Current(s))
		}},
	} {
		for n := range 6 {
			for _, marked := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " ", n, " ", marked), func(t *testing.T) {
					t.Parallel()
					s := webElsewhere()
					withNode(t, s, func(w *world) {
						w.ensure(s)
						require.NotNil(w, w.sim.Shown(otherPIP(webPIP)))
						if !marked {
							w.unmark(otherPIP(webPIP))
						}
						w.restart()
						w.change(s, c.change)
						w.interrupt(n + 1)
						_ = c.do(w, s) // at some n it is over before that
						w.server.ClearFaults()
						w.restart()
						require.NoError(w, c.do(w, s))
						assert.Nil(w, w.sim.Shown(otherPIP(webPIP)), "nobody has it any more")
						w.remove(s)
						assert.Empty(w, w.sim.Snapshot())
					})
				})
			}
		}
	}
}

// TestAddressElsewhereOfAnotherCluster: in other resource groups of the subscription, only the mark or the UID in the name make an address
// a Service's own: another cluster may be called the same and have a Service of the same name.
func TestAddressElsewhereOfAnotherCluster(t *testing.T) {
	t.Parallel()
	const theirs = "kubernetes-afffffff7a664b588b4b0a61c1f9e0cf"
	for name, tags := range map[string]doc{
		"unmarked": {"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "kubernetes"},
		"marked":   {"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "kubernetes", "anyccm-cluster": "00000000-aaaa-4000-8000-000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.sim.Leave(otherPIP(theirs), leftPIP("", "tags", tags).doc)
				w.ensure(s)
				assert.Empty(w, w.orphans())
				w.remove(s)
				assert.Empty(w, w.orphans())
				assert.Equal(w, tagsOf(doc{"tags": tags}), tagsOf(w.sim.Shown(otherPIP(theirs))))
			})
		})
	}
}

// TestSubscriptionThatMayNotBeSeen: a credential for resource groups alone serves as any other one.
func TestSubscriptionThatMayNotBeSeen(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.restart()
		w.sim.GrantGroupsAlone()
		w.server.ResetCalls()
		w.ensure(s)
		calls := w.server.Calls()
		assert.Zero(w, calls.Writes)
		assert.Equal(w, 2, calls.ByOperation["GET Microsoft.Network/publicIPAddresses"], "the second one is of the resource group")
		waitFor(2 * observeMaxAge)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Equal(w, 1, w.server.Calls().ByOperation["GET Microsoft.Network/publicIPAddresses"], "it asks once")
		w.sim.RemoveLoadBalancers()
		w.lose(s)
		require.Len(w, w.orphans(), 1)
		w.deleteOrphans()
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestResourceGroupThatIsGone: one that a Service names no more, or that goes before its Service, keeps nothing from going on.
func TestResourceGroupThatIsGone(t *testing.T) {
	t.Parallel()
	s := webElsewhere()
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroup) })
		w.ensure(s)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationGroup] = "no-such-group" })
		require.ErrorContains(w, w.refuse(s), "no-such-group")
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroup) })
		waitFor(2 * observeMaxAge)
		w.ensure(s)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationGroup] = "no-such-group" })
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestOrphansInOtherResourceGroups: an address that nothing names any more is listed and goes, whether its Service lives, is gone, or its
// load balancer is gone as well.
func TestOrphansInOtherResourceGroups(t *testing.T) {
	t.Parallel()
	keepAddresses := func(w *world) {
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "DELETE Microsoft.Network/publicIPAddresses"})
		require.NoError(w, err)
	}
	for name, living := range map[string]bool{"living": true, "gone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webElsewhere()
			withNode(t, s, func(w *world) {
				w.ensure(s)
				assert.Empty(w, w.orphans())
				w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroup) })
				keepAddresses(w)
				require.Error(w, w.refuse(s))
				if !living {
					require.Error(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, w.Current(s)))
					w.lose(s)
				} else {
					w.change(s, func(s *v1.Service) { s.Status.LoadBalancer.Ingress = nil })
				}
				w.server.ClearFaults()
				w.lose()
				ids := []string{}
				for _, o := range w.orphans() {
					ids = append(ids, strings.ToLower(o.ID))
				}
				assert.Contains(w, ids, strings.ToLower(otherPIP(webPIP)))
				w.deleteOrphans()
				assert.Nil(w, w.sim.Shown(otherPIP(webPIP)))
				if living {
					assert.NotNil(w, w.sim.Shown(pipID(webPIP)))
					w.remove(s)
				}
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}

// TestResourceGroupsNamedOneAfterAnother: what a Service names no more costs no call, and nothing is remembered of it but addresses that
// are there.
func TestResourceGroupsNamedOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := webElsewhere()
	withNode(t, s, func(w *world) {
		w.ensure(s)
		for i := range 200 {
			w.change(s, func(s *v1.Service) { s.Annotations[annotationGroup] = fmt.Sprint("no-such-", i) })
			require.Error(w, w.refuse(s))
		}
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroup) })
		w.ensure(s)
		assert.Nil(w, w.sim.Shown(otherPIP(webPIP)), "the address in the first group is the Service's still, and goes")
		waitFor(2 * observeMaxAge)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Equal(w, 1, w.server.Calls().ByOperation["GET Microsoft.Network/publicIPAddresses"], "that of the usual group")
		assert.LessOrEqual(w, w.server.Calls().Total, 3, "%v", w.server.Calls().ByOperation)
		resources := w.cloud.reconciler.resources
		assert.LessOrEqual(w, len(resources.byPath), 2)
		assert.Empty(w, resources.elsewhere)
	})
}

// TestAddressElsewhereIsForgottenWithItsService: a Service that was served from another resource group leaves nothing to remember.
func TestAddressElsewhereIsForgottenWithItsService(t *testing.T) {
	t.Parallel()
	s := webElsewhere()
	withNode(t, s, func(w *world) {
		w.ensure(s)
		assert.Len(w, w.cloud.reconciler.resources.elsewhere, 1)
		w.remove(s)
		assert.Empty(w, w.cloud.reconciler.resources.elsewhere)
	})
}

// TestAddressElsewhereWithoutTheSubscription: a credential for resource groups alone finds the former address as long as the program runs,
// also where the answer to its creation was lost.
func TestAddressElsewhereWithoutTheSubscription(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]string{"made": "", "answer lost": simkit.FaultLost, "seen after a restart": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webElsewhere()
			withNode(t, s, func(w *world) {
				w.sim.GrantGroupsAlone()
				if fault != "" {
					_, err := w.server.AddFault(simkit.Fault{Kind: fault, Operation: "PUT Microsoft.Network/publicIPAddresses/{name}", Writes: true})
					require.NoError(w, err)
				}
				_, _ = w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes)
				w.server.ClearFaults()
				require.NotNil(w, w.sim.Shown(otherPIP(webPIP)))
				if name == "seen after a restart" {
					w.restart()
					w.ensure(s)
				}
				w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroup) })
				w.ensure(s)
				assert.Nil(w, w.sim.Shown(otherPIP(webPIP)))
			})
		})
	}
}

// TestFailedFirstListing: a listing that fails after a start does not hide the addresses that it would have shown.
func TestFailedFirstListing(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		s := webElsewhere()
		withNode(t, s, func(w *world) {
			w.ensure(s)
			w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroup) })
			w.interrupt(n + 1)
			_, _ = w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes) // at some n it is over before that
			w.server.ClearFaults()
			w.restart()
			_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: "GET Microsoft.Network/publicIPAddresses"})
			require.NoError(w, err)
			_, err = w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes)
			require.Error(w, err)
			w.server.ClearFaults()
			waitFor(observeMaxAge)
			w.ensure(s)
			assert.Nil(w, w.sim.Shown(otherPIP(webPIP)), "nobody has it any more")
		})
	}
}

// TestCreatedAddressThatIsNotShown: an address that Azure does not show right after its creation is not forgotten.
func TestCreatedAddressThatIsNotShown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		r, id := w.cloud.reconciler.resources, otherPIP("new")
		made := &publicIP{resource: resource{subresource: subresource{ID: id, Name: "new"}, Tags: map[string]string{serviceTag: "default/web"}}}
		r.recordElsewhere(made)
		for _, fault := range []simkit.Fault{{Kind: simkit.FaultUnlisted}, {Kind: simkit.FaultStatus, Status: 404, Reads: true}} {
			fault.Names = "new"
			_, err := w.server.AddFault(fault)
			require.NoError(w, err)
		}
		target := document{id: id, what: "public IP address new", create: func() doc {
			return doc{"location": "westeurope", "sku": doc{"name": "Standard"}, "properties": doc{"publicIPAllocationMethod": "Static"}}
		}}
		require.NoError(w, r.submit(w.Context(), target, func(d doc) (doc, error) { return d, nil }))
		assert.Equal(w, []string{made.lowerID()}, r.idsElsewhere(func(*publicIP) bool { return true }))
	})
}
