package keepalived

import (
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

// InstancesV2 implements cloudprovider.Interface. Here only kubelets know the nodes.
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool) {
	if !c.reconciler.config.InitializeNodes {
		return nil, false
	}
	return nodes.Reported{Prefix: Name + "://"}, true
}
