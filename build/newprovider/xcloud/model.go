package xcloud

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file computes the desired state from Service, nodes and settings. It makes no calls.

// spec is the desired state of a load balancer.
type spec struct {
	Name      string   `json:"name"`
	Algorithm string   `json:"algorithm"`
	Listeners []port   `json:"listeners"`
	Backends  []string `json:"backends"`
	Tags      []string `json:"tags"`
}

// port maps a port of the load balancer to one of the backends.
type port struct {
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
	Target   int32  `json:"target"`
}

// loadBalancer is a load balancer as the API shows it.
type loadBalancer struct {
	spec
	ID      string `json:"id"`
	Address string `json:"address"`
	Status  string `json:"status"`
}

// loadBalancerName returns the name that the cloud's own controller uses.
func loadBalancerName(_ string, service *v1.Service) string {
	return "k8s-" + string(service.UID)
}

// desire returns the desired load balancer of a Service.
func desire(service *v1.Service, nodes []*v1.Node, s settings, tags []string) spec {
	d := spec{Name: loadBalancerName("", service), Algorithm: s.Algorithm, Listeners: []port{}, Backends: backends(nodes), Tags: tags}
	for _, p := range service.Spec.Ports {
		d.Listeners = append(d.Listeners, port{strings.ToLower(string(p.Protocol)), p.Port, p.NodePort})
	}
	return d
}

// backends returns the internal addresses of the nodes.
func backends(nodes []*v1.Node) []string {
	list := []string{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == v1.NodeInternalIP {
				list = append(list, a.Address)
				break
			}
		}
	}
	slices.Sort(list)
	return list
}

// differences describes the differences of two load balancers.
func differences(a, b spec) []string {
	var list []string
	for what, same := range map[string]bool{
		"algorithm": a.Algorithm == b.Algorithm, "listeners": services.SameSet(a.Listeners, b.Listeners),
		"backends": services.SameSet(a.Backends, b.Backends), "tags": services.SameSet(a.Tags, b.Tags),
	} {
		if !same {
			list = append(list, what)
		}
	}
	slices.Sort(list)
	return list
}
