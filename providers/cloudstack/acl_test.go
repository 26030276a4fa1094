package cloudstack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
)

// aTier has the network of the nodes be a tier.
func aTier(s *cloudstacksim.Sim) string { s.MakeTier(); return "" }

// TestSharedACLItem: two Services on one port of a tier; when one goes, the other's port stays open.
func TestSharedACLItem(t *testing.T) {
	inCluster(t, aTier, func(w *cluster) {
		one := w.requireServed(w.serve("one", port("http", 80, 30080)))
		two := w.requireServed(w.serve("two", port("http", 80, 30081)))
		opened := func() bool {
			return slices.ContainsFunc(w.sim.ACLItems(), func(i cloudstacksim.ACLItem) bool {
				return i.Start == 80 && i.End == 80 && i.Action == "Allow" && i.Traffic == "Ingress" && slices.Contains(i.CIDRs, everybody)
			})
		}
		require.True(t, opened())
		w.remove(one)
		assert.True(t, opened(), "the other Service is served")
		w.waitUntilForgotten()
		w.server.ResetCalls()
		w.requireServed(two)
		assert.Zero(t, w.server.Calls().Writes)
		w.remove(two)
		assert.False(t, opened())
	})
}

// TestACLItemsMadeByHand: what somebody put into the list by hand stays, and what does not open the port does not count as if it did.
func TestACLItemsMadeByHand(t *testing.T) {
	for what, item := range map[string]cloudstacksim.ACLItem{
		"deny":       {Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{everybody}, Action: "Deny", Traffic: "Ingress"},
		"egress":     {Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{everybody}, Action: "Allow", Traffic: "Egress"},
		"restricted": {Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{"192.0.2.0/24"}, Action: "Allow", Traffic: "Ingress"},
		"a range":    {Protocol: "tcp", Start: 1, End: 65535, CIDRs: []string{"192.0.2.0/24"}, Action: "Allow", Traffic: "Ingress"},
		"upper case": {Protocol: "TCP", Start: 80, End: 80, CIDRs: []string{everybody}, Action: "Allow", Traffic: "Ingress"},
	} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, aTier, func(w *cluster) {
				item.List = w.sim.Networks()[0].ACL
				item.ID = w.sim.AddACLItem(item)
				s := w.requireServed(w.serve("web", port("http", 80, 30080)))
				own := slices.ContainsFunc(w.sim.ACLItems(), func(i cloudstacksim.ACLItem) bool {
					return i.ID != item.ID && i.Start == 80 && i.Action == "Allow" && i.Traffic == "Ingress"
				})
				if what == "deny" {
					blocked := strings.Join(w.Events(), "\n")
					assert.Contains(t, blocked, eventBlocked)
					assert.Contains(t, blocked, "port 80")
				}
				assert.Equal(t, what == "egress" || what == "a range", own, "%+v", w.sim.ACLItems())
				w.remove(s)
				require.Len(t, w.sim.ACLItems(), 1)
				assert.Equal(t, item.ID, w.sim.ACLItems()[0].ID)
			})
		})
	}
}

// TestFormerClientsBesideAnItemMadeByHand: the Service's own item lets in nobody else than it asks for, and stays beside one made by hand.
func TestFormerClientsBesideAnItemMadeByHand(t *testing.T) {
	inCluster(t, aTier, func(w *cluster) {
		s := w.requireServed(w.serve("web", port("http", 80, 30080)))
		w.sim.AddACLItem(cloudstacksim.ACLItem{
			Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{"198.51.100.0/24"}, Action: "Allow", Traffic: "Ingress", List: w.sim.Networks()[0].ACL,
		})
		lets := func() (all []string) {
			for _, i := range w.sim.ACLItems() {
				all = append(all, strings.Join(i.CIDRs, ","))
			}
			slices.Sort(all)
			return all
		}
		time.Sleep(2 * observedMaxAge)
		s = w.requireServed(s)
		require.Equal(t, []string{everybody, "198.51.100.0/24"}, lets())
		s = s.DeepCopy()
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.Apply(s)
		s = w.requireServed(s)
		assert.Equal(t, []string{"192.0.2.0/24", "198.51.100.0/24"}, lets())
		w.remove(s)
		assert.Equal(t, []string{"198.51.100.0/24"}, lets())
	})
}

// TestACLsOfOthersAreNotWritten: lists that belong to no VPC are never written to.
func TestACLsOfOthersAreNotWritten(t *testing.T) {
	for _, name := range []string{"default_allow", "default_deny", "company"} {
		t.Run(name, func(t *testing.T) {
			prepare := func(s *cloudstacksim.Sim) string {
				s.MakeTier()
				s.UseList(name)
				return ""
			}
			inCluster(t, prepare, func(w *cluster) {
				s := w.serve("web", port("http", 80, 30080))
				w.requireServed(s)
				assert.Zero(t, w.server.Calls().ByOperation["createNetworkACL"])
				if name != "default_allow" {
					assert.Contains(t, strings.Join(w.Events(), "\n"), name)
				}
				w.remove(s)
				assert.Empty(t, w.takenTexts())
			})
		})
	}
}

// TestItemInAFormerList: somebody gave the tier another list; what the Service had in the former one goes with it, or with the orphan. What
// others have there stays.
func TestItemInAFormerList(t *testing.T) {
	for _, list := range []string{listOpen, "made"} {
		for _, orphaned := range []bool{false, true} {
			t.Run(fmt.Sprint(list, " ", orphaned), func(t *testing.T) {
				inCluster(t, aTier, func(w *cluster) {
					t := w.T
					s := w.requireServed(w.serve("web", port("http", 80, 30080)))
					w.sim.AddACLItem(cloudstacksim.ACLItem{
						Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{"192.0.2.0/24"}, Action: "Allow", Traffic: "Ingress", List: w.sim.UsedList(),
						Reason: reasonPrefix + "a0123456789abcdef0123456789abcde",
					})
					if list == listOpen {
						w.sim.UseList(list)
					} else {
						id := w.sim.AddACLList(list, w.sim.Networks()[0].VPC)
						w.sim.EditNetwork(w.sim.SeedNetwork(), func(n *cloudstacksim.Network) { n.ACL = id })
					}
					w.waitUntilForgotten()
					s = w.requireServed(s)
					if orphaned {
						w.Withdraw(s)
						require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
						found, err := w.Orphans(t.Context(), nil)
						require.NoError(t, err)
						require.Len(t, found, 1)
						require.NoError(t, w.DeleteOrphan(t.Context(), found[0]))
					} else {
						w.remove(s)
					}
					require.Len(t, w.sim.ACLItems(), 1, "the Service's own is gone")
					assert.Equal(t, []string{"192.0.2.0/24"}, w.sim.ACLItems()[0].CIDRs, "another cluster's")
					assert.Empty(t, w.sim.Rules())
				})
			})
		}
	}
}

// TestEachPortOfAnOrphanIsClosed: a port that cannot be closed keeps no other open, and the orphan is found until all are.
func TestEachPortOfAnOrphanIsClosed(t *testing.T) {
	for command, prepare := range map[string]func(*cloudstacksim.Sim) string{
		"deleteNetworkACL": aTier, "deleteLoadBalancerRule": func(s *cloudstacksim.Sim) string { removeFirewall(s); return "" },
	} {
		t.Run(command, func(t *testing.T) {
			inCluster(t, prepare, func(w *cluster) {
				t := w.T
				s := w.requireServed(w.serve("web", port("http", 80, 30080), port("https", 443, 30443)))
				w.Withdraw(s)
				require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
				for _, left := range []int{1, 0} {
					found, err := w.Orphans(t.Context(), nil)
					require.NoError(t, err)
					require.Len(t, found, 1)
					if left == 1 {
						w.sim.FailJobs(cloudstacksim.Failure{Command: command, Code: 530, Text: "the router is down"})
						require.ErrorContains(t, w.DeleteOrphan(t.Context(), found[0]), "the router is down")
					} else {
						require.NoError(t, w.DeleteOrphan(t.Context(), found[0]))
					}
					if command == "deleteNetworkACL" {
						assert.Len(t, w.sim.ACLItems(), left)
					} else {
						assert.Len(t, w.sim.Rules(), left, "rules that still let clients in")
					}
				}
				assert.Empty(t, w.sim.Rules())
				assert.Empty(t, w.takenTexts())
			})
		})
	}
}
