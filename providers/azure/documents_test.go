package azure

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

// TestForeignWriteMeanwhile: what somebody else writes between our read and our write is kept, also when that happens again and again.
func TestForeignWriteMeanwhile(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		id := lbID("kubernetes")
		for i := range 3 {
			w.sim.Meanwhile(id, func(lb map[string]any) {
				tags, _ := lb["tags"].(doc)
				lb["tags"] = asDoc(tagsOf(doc{"tags": tags}))
				lb["tags"].(doc)[fmt.Sprintf("by-hand-%d", i)] = "kept"
				rules := append(docs(lb, "properties", "outboundRules"), part(fmt.Sprintf("out-%d", i), doc{
					"frontendIPConfigurations": []any{reference("kubernetes", "frontendIPConfigurations", base)},
				}))
				setList(lb, "outboundRules", rules)
			})
		}
		w.sim.Meanwhile(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName), func(group map[string]any) {
			admin := leftAllow("IPv4", "", 501, "Tcp", "*", "*", "22")
			admin["name"] = "admin"
			setList(group, "securityRules", append(docs(group, "properties", "securityRules"), admin))
		})
		w.change(s, func(s *v1.Service) {
			s.Annotations[annotationIdle], s.Annotations[annotationAllowedRanges] = "30", "10.0.0.0/8"
		})
		w.server.ResetCalls()
		w.ensure(s)
		assert.Equal(w, 4, w.server.Calls().ByOperation["PUT Microsoft.Network/loadBalancers/{name}"], "three times somebody else was quicker")
		tags := tagsOf(w.sim.Shown(id))
		for i := range 3 {
			assert.Equal(w, "kept", tags[fmt.Sprintf("by-hand-%d", i)])
		}
		assert.Len(w, w.parts("kubernetes", "outboundRules"), 3)
		assert.Equal(w, 30, num(w.parts("kubernetes", "loadBalancingRules")[0], "properties", "idleTimeoutInMinutes"))
		assert.NotNil(w, byName(w.securityRules(), "admin"))
		assert.Len(w, w.securityRules(), 2)
	})
}

// TestTwoWriters: two programs that write the same load balancer and security group at the same time lose nothing of each other's.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	first, second := webService(nil), webNumber(1, map[string]string{annotationAllowedRanges: "10.0.0.0/8"})
	withNode(t, first, func(w *world) {
		w.Apply(second)
		one := w.cloud
		w.restart()
		var all sync.WaitGroup
		for c, s := range map[*cloud]*v1.Service{one: first, w.cloud: second} {
			all.Go(func() {
				for range 5 { // what was refused for the other's write is tried again, as the framework does
					if _, err := c.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes); err == nil {
						return
					}
					time.Sleep(10 * time.Second)
				}
				assert.Fail(w, s.Name+" is not served")
			})
		}
		all.Wait()
		assert.ElementsMatch(w, []string{base, baseName(second)}, namesOf(w.parts("kubernetes", "frontendIPConfigurations")))
		assert.Len(w, w.parts("kubernetes", "loadBalancingRules"), 2)
		assert.Len(w, w.securityRules(), 2)
	})
}

// TestForeignPartBeforeADeletion: what somebody else adds to a load balancer or a public address seconds before the last Service goes, or
// while it goes, keeps it.
func TestForeignPartBeforeADeletion(t *testing.T) {
	t.Parallel()
	outbound := func(lb map[string]any) {
		setList(lb, "frontendIPConfigurations", append(docs(lb, "properties", "frontendIPConfigurations"), leftFront("users", "users")))
		setList(lb, "outboundRules", []doc{part("users-out", doc{
			"frontendIPConfigurations": []any{reference("kubernetes", "frontendIPConfigurations", "users")},
		})})
	}
	guest := func(a map[string]any) { a["tags"].(doc)[serviceTag] = "default/web,other/guest" }
	for name, when := range map[string]func(w *world, id string, change func(map[string]any)){
		"seconds before": func(w *world, id string, change func(map[string]any)) {
			time.Sleep(5 * time.Second)
			assert.NoError(w, w.sim.Change(id, change))
		},
		"meanwhile": func(w *world, id string, change func(map[string]any)) { w.sim.Meanwhile(id, change) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.ensure(s)
				w.sim.AddAddress("users")
				when(w, lbID("kubernetes"), outbound)
				when(w, pipID(webPIP), guest)
				w.remove(s)
				assert.Equal(w, []string{"users"}, namesOf(w.parts("kubernetes", "frontendIPConfigurations")))
				assert.Equal(w, []string{"users-out"}, namesOf(w.parts("kubernetes", "outboundRules")))
				assert.Equal(w, "other/guest", tagsOf(w.sim.Shown(pipID(webPIP)))[serviceTag])
			})
		})
	}
}
