package aws

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

//go:embed testdata/examples.yaml
var examples string

// TestExamples serves every example of the provider's page.
func TestExamples(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	w.addNode(awssim.Spec{Name: "n1"})
	for _, s := range conformance.Examples(t, examples, checkService) {
		s.Namespace, s.UID = "default", types.UID("uid-of-"+s.Name)
		w.Apply(s)
		w.ensure(s)
	}
	assert.Len(t, w.sim.Networks(), 2)
	assert.Len(t, w.sim.Classics(), 1)
	assert.Empty(t, w.server.Calls().Refused)
}
