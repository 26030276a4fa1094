package cloudstack

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

type nic struct {
	NetworkID string `json:"networkid"`
	IP        string `json:"ipaddress"`
	Default   bool   `json:"isdefault"`
}

type vm struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	State    string `json:"state"`
	Zone     string `json:"zonename"`
	Offering string `json:"serviceofferingname"`
	PublicIP string `json:"publicip"`
	NICs     []nic  `json:"nic"`
	Tags     []tag  `json:"tags"`
}

type tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (v vm) tags() map[string]string {
	all := map[string]string{}
	for _, t := range v.Tags {
		all[t.Key] = t.Value
	}
	return all
}

// isDestroyed reports whether a virtual machine no longer runs unless somebody recovers it.
func (v vm) isDestroyed() bool {
	return slices.Contains([]string{"Destroyed", "Expunging", "Expunged"}, v.State)
}

// nics returns the interfaces, the default one first, because the API guarantees no order.
func (v vm) nics() []nic {
	list := slices.Clone(v.NICs)
	slices.SortStableFunc(list, func(a, b nic) int {
		if a.Default != b.Default {
			return map[bool]int{true: -1, false: 1}[a.Default]
		}
		return strings.Compare(a.NetworkID+a.IP, b.NetworkID+b.IP)
	})
	return list
}

func (v vm) isIn(network string) bool {
	return slices.ContainsFunc(v.NICs, func(n nic) bool { return n.NetworkID == network })
}

// names returns the names for the index. A destroyed machine's name may be reused.
func names(v vm) []string {
	if v.isDestroyed() || v.Name == "" {
		return nil
	}
	return []string{strings.ToLower(v.Name)}
}

// state maps a state to its meaning for Kubernetes.
func (v vm) state() (nodes.State, error) {
	switch {
	case v.State == "":
		return nodes.Existing, cloudapi.Unclear("reading virtual machine "+v.ID, "the answer does not say its state")
	case v.isDestroyed():
		return nodes.Terminated, nil
	case v.State == "Stopped", v.State == "Shutdown":
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

var notInType = regexp.MustCompile(`[^A-Za-z0-9]+`)

// instanceType converts a service offering's name like CloudStack's own controller.
func instanceType(offering string) string {
	t := notInType.ReplaceAllString(offering, "")
	return t[:min(len(t), validation.LabelValueMaxLength)]
}

func (i *instances) describe(_ context.Context, node *v1.Node, v vm, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	var ips []netip.Addr
	for _, n := range v.nics() {
		if ip, err := netip.ParseAddr(n.IP); err == nil && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	ordered, lacks := nodes.GivenFirst(node, ips)
	switch {
	case len(ips) == 0:
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("instance does not have an internal IP: virtual machine %s (%s) has no interface with an address", v.Name, v.ID)}
	case lacks.IsValid():
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("kubelet was started with --node-ip=%s, which virtual machine %s does not have; it has %s", lacks, v.ID, ips)}
	}
	m := &cloudprovider.InstanceMetadata{InstanceType: instanceType(v.Offering), Zone: nodes.LabelValue(v.Zone), Region: i.api.config.Region}
	if m.Region == "" {
		m.Region = m.Zone
	}
	for _, ip := range ordered {
		m.NodeAddresses = append(m.NodeAddresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	m.NodeAddresses = append(m.NodeAddresses, v1.NodeAddress{Type: v1.NodeHostName, Address: v.Name})
	if v.PublicIP != "" {
		m.NodeAddresses = append(m.NodeAddresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: v.PublicIP})
	}
	return m, nil
}

// verify compares names: controlling a kubelet does not allow renaming the virtual machine.
func verify(_ context.Context, node *v1.Node, v vm) (why string, err error) {
	return nodes.VerifyName(node, "virtual machine "+v.ID, v.Name), nil
}
