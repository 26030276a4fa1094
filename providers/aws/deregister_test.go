package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestDeregisteringWhatIsGone: AWS takes instances that exist no longer out of load balancers by itself, and refuses a call that names
// one. That is no failure of the Service, and those that still exist are taken out all the same.
func TestDeregisteringWhatIsGone(t *testing.T) {
	t.Parallel()
	// How often AWS is asked: once about one instance; of several it refuses all, and each is said by itself then.
	for name, asked := range map[string]int{"alone": 1, "with one that exists": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestWorld(t, "", awssim.Options{})
			stays, gone, leaves := w.addNode(awssim.Spec{Name: "a"}), w.addNode(awssim.Spec{Name: "b"}), w.addNode(awssim.Spec{Name: "c"})
			s := service("web", nil, servicePort("http", 80, 30080))
			w.Apply(s)
			w.ensure(s)
			w.sim.Remove(instanceOf(gone))
			w.nodes = append(w.nodes[:1], w.nodes[2:]...)
			expected := []string{instanceOf(stays), instanceOf(leaves)}
			if asked > 1 {
				w.nodes, expected = w.nodes[:1], expected[:1]
			}
			w.server.ResetCalls()
			w.update(s)
			assert.Equal(t, expected, w.sim.Classics()[0].Instances)
			assert.Equal(t, asked, w.server.Calls().ByOperation["ELB DeregisterInstancesFromLoadBalancer"], "%v", w.server.Calls().ByOperation)
			assert.Empty(t, w.Events())
		})
	}
}
