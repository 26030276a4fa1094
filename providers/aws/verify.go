package aws

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// verifyNode accepts an instance of this cluster, by its tags and its VPC, if the Node is named after it, by its ID or its private DNS
// name. A Node with a name of its own counts where the tag Name of its instance says so.
func (i *instances) verifyNode(ctx context.Context, node *v1.Node, one instance) (why string, err error) {
	_, id, err := i.api.connect(ctx)
	if err != nil {
		return "", err
	}
	return whyUnverified(id, node.Name, one), nil
}

// whyUnverified returns why an instance is not proved to be a Node's, or "".
func whyUnverified(id *identity, node string, one instance) string {
	name, _, _ := strings.Cut(node, ".")
	dns, _, _ := strings.Cut(one.privateDNS, ".")
	switch {
	case !id.isTagged(one.tags):
		return fmt.Sprintf("instance %s lacks the tag %s", one.id, id.clusterTag())
	case id.vpc != "" && one.vpc != id.vpc:
		return fmt.Sprintf("instance %s is in VPC %s, the cluster in %s", one.id, one.vpc, id.vpc)
	case name == one.id, node == one.privateDNS, name == dns, node == one.tags["Name"]:
		return ""
	}
	return fmt.Sprintf("node %s is named neither by the ID nor by the private DNS name of instance %s (%s), nor is that its tag Name", node, one.id, one.privateDNS)
}
