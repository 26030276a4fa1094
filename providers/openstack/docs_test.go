package openstack

import (
	_ "embed"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

//go:embed testdata/examples.yaml
var examples string

// TestExamples serves every example of the provider's page.
func TestExamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		ports := 0
		for _, s := range conformance.Examples(t, examples, checkService) {
			s.Namespace = "default"
			ports += len(s.Spec.Ports)
			w.Apply(s)
			w.ensure(s)
		}
		assert.Len(t, w.sim.Listeners(), ports)
		assert.Empty(t, w.server.Calls().Refused)
	})
}
