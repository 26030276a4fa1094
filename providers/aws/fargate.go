package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const fargatePrefix = "fargate-"

// podInterface is the network interface of a pod on Fargate, which is a node to Kubernetes.
type podInterface struct {
	// key is the private address that provider IDs lead to.
	key, zone, privateIP, privateDNS string
	ipv6                             []string
}

// fargateKey returns the private address of a node on Fargate, from a provider ID such as
// aws:///us-west-2c/1abc-2def/fargate-192.168.164.88 or …/fargate-ip-192-168-164-88.us-west-2.compute.internal.
func fargateKey(providerID string) (string, bool) {
	last, err := lastSegment(providerID)
	if err != nil {
		return "", false
	}
	name, ok := strings.CutPrefix(last, fargatePrefix)
	if !ok {
		return "", false
	}
	if dashed, isName := strings.CutPrefix(name, "ip-"); isName {
		dashed, _, _ = strings.Cut(dashed, ".")
		name = strings.ReplaceAll(dashed, "-", ".")
	}
	_, err = netip.ParseAddr(name) // anything else would be a pattern to EC2's filters
	return name, err == nil
}

func isOnFargate(node *v1.Node) bool {
	_, ok := fargateKey(node.Spec.ProviderID)
	return ok
}

// fargate answers the questions about nodes on Fargate, which are never shut down.
type fargate struct {
	*nodes.Instances[string, podInterface]
	instances *instances
}

func newFargate(i *instances) fargate {
	f := fargate{instances: i}
	f.Instances = nodes.New(nodes.Cloud[string, podInterface]{
		Kind: "pod", Nodes: i.nodes, Price: callPrice, MinAge: minAge, Form: providerIDPrefix + "/<zone>/<ID>/" + fargatePrefix + "<address>",
		Inventory: inventory.New(inventory.Source[string, podInterface]{
			Kind: "network interface", ID: func(e podInterface) string { return e.key }, Get: i.getPodInterface,
		}),
		Parse: func(providerID string) (string, error) {
			key, ok := fargateKey(providerID)
			if !ok {
				return "", fmt.Errorf("provider ID %q is not one of Fargate", providerID)
			}
			return key, nil
		},
		Metadata: f.describe, Unattested: "EC2 shows of a pod on Fargate its network interface alone, and its kubelet is run by AWS",
	})
	return f
}

// VerifyInstance implements contract.InstanceVerifier.
func (fargate) VerifyInstance(context.Context, *v1.Node) (ok bool, why string, err error) {
	return false, "it runs on Fargate, which has no instance", nil
}

// getPodInterface looks for the interface with an address. EC2 does not say of an address that it is in no use, it leaves
// it out of the answer; that counts only where the same answer shows the interface of an instance that exists.
func (i *instances) getPodInterface(ctx context.Context, ip string) (podInterface, error) {
	what := "reading the network interface with the address " + ip
	_, id, err := i.api.connect(ctx)
	if err != nil {
		return podInterface{}, err
	}
	witness, err := i.findRunningAddress(ctx)
	if err != nil {
		return podInterface{}, fmt.Errorf("%s: %w", what, err)
	}
	addresses := slices.DeleteFunc([]string{ip, witness}, func(a string) bool { return a == "" })
	out, err := call(ctx, i.api, what, (*ec2.Client).DescribeNetworkInterfaces, &ec2.DescribeNetworkInterfacesInput{
		Filters: []ec2types.Filter{filter("attachment.status", "attached"), filter("vpc-id", id.vpc), filter("private-ip-address", addresses...)},
	})
	if err != nil {
		if errors.Is(err, cloudapi.ErrNotFound) {
			err = cloudapi.Unclear(what, "%v", err)
		}
		return podInterface{}, err
	}
	seen := false
	var found []podInterface
	for _, e := range out.NetworkInterfaces {
		switch aws.ToString(e.PrivateIpAddress) {
		case witness:
			seen = true
		case ip:
			one := podInterface{key: ip, zone: aws.ToString(e.AvailabilityZone), privateIP: ip, privateDNS: aws.ToString(e.PrivateDnsName)}
			for _, a := range e.Ipv6Addresses {
				one.ipv6 = append(one.ipv6, aws.ToString(a.Ipv6Address))
			}
			found = append(found, one)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return podInterface{}, fmt.Errorf("%s: %d interfaces have it", what, len(found))
	case witness == "" || !seen:
		return podInterface{}, cloudapi.Unclear(what, "no interface has the address, but nothing proves that EC2 showed all of them; delete the Node by hand if its pod is gone")
	}
	return podInterface{}, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "no interface has it"}
}

// findRunningAddress returns the address of a running instance, or "".
func (i *instances) findRunningAddress(ctx context.Context) (string, error) {
	all, err := i.inventory.All(ctx, inventory.Query{MaxAge: nodes.SweepMaxAge})
	if err != nil {
		return "", err
	}
	for _, one := range all {
		if one.state == stateRunning && len(one.interfaces) > 0 && len(one.interfaces[0].privateIPs) > 0 && one.interfaces[0].index == 0 {
			return one.interfaces[0].privateIPs[0], nil
		}
	}
	return "", nil
}

// describe returns what the interface of a pod says about its node.
func (f fargate) describe(ctx context.Context, node *v1.Node, e podInterface, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	m := &cloudprovider.InstanceMetadata{ProviderID: node.Spec.ProviderID, Zone: e.zone}
	for _, family := range f.instances.config.NodeIPFamilies {
		switch {
		case family == familyIPv4:
			m.NodeAddresses = append(m.NodeAddresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: e.privateIP})
		case len(e.ipv6) > 0:
			m.NodeAddresses = append(m.NodeAddresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: e.ipv6[0]})
		}
		if e.privateDNS != "" {
			m.NodeAddresses = append(m.NodeAddresses, v1.NodeAddress{Type: v1.NodeInternalDNS, Address: e.privateDNS})
		}
	}
	if err := checkAddresses(e.key, m.NodeAddresses); err != nil {
		return nil, err
	}
	_, id, err := f.instances.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	m.Region = id.region
	if contract.Uninitialized(node) {
		m.AdditionalLabels, err = f.instances.labelsOf(ctx, node, instance{zone: e.zone})
	}
	return m, err
}
