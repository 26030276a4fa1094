package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestExampleFlagsAreAccepted: the network flags of Kubernetes' example DaemonSet are valid on every cloud.
func TestExampleFlagsAreAccepted(t *testing.T) {
	t.Parallel()
	problems := func(p registry.Provider, in registry.Inputs) (all []string) {
		for _, problem := range schema.Problems(p.Validate(in)) {
			all = append(all, problem.Error())
		}
		return all
	}
	for _, p := range registry.Linked().Providers() {
		example := registry.Inputs{ClusterCIDR: "172.17.0.0/16", AllocateNodeCIDRs: true, CIDRAllocator: "RangeAllocator"}
		assert.Equal(t, problems(p, registry.Inputs{}), problems(p, example), p.Name)
	}
}
