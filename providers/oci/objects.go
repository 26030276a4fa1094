package oci

import (
	"cmp"
	"encoding/json"
)

// This file has the objects of the cloud's services for load balancers.

const (
	stateCreating = "CREATING"
	stateActive   = "ACTIVE"
	stateFailed   = "FAILED"
	stateDeleting = "DELETING"
	stateDeleted  = "DELETED"
	stateUpdating = "UPDATING" // which network load balancers have alone

	workAccepted  = "ACCEPTED"
	workProgress  = "IN_PROGRESS"
	workCanceling = "CANCELING"
	workSucceeded = "SUCCEEDED"

	versionIPv4 = "IPV4"
	versionIPv6 = "IPV6"
	versionBoth = "IPV4_AND_IPV6"

	// workPage is how many of a load balancer's work requests are read, the newest first: one of them runs at most.
	workPage = "10"
)

// document is part of a load balancer as the API has it. It is written back with all that is in it, what this program does not know
// included.
type document = map[string]any

// shapeDetails are the bandwidths of a flexible shape.
type shapeDetails struct {
	Least int `json:"minimumBandwidthInMbps"`
	Most  int `json:"maximumBandwidthInMbps"`
}

// loadBalancer holds the fields of a load balancer that we use. It is never changed in place.
type loadBalancer struct {
	ID          string              `json:"id"`
	Name        string              `json:"displayName"`
	Compartment string              `json:"compartmentId"`
	State       string              `json:"lifecycleState"`
	Shape       string              `json:"shapeName"`
	Details     *shapeDetails       `json:"shapeDetails"`
	Addresses   []address           `json:"ipAddresses"`
	Groups      []string            `json:"networkSecurityGroupIds"`
	Listeners   map[string]document `json:"listeners"`
	BackendSets map[string]document `json:"backendSets"`
	Tags        map[string]string   `json:"freeformTags"`

	Defined map[string]map[string]any `json:"definedTags"`

	Certificates map[string]document `json:"certificates"`
	RuleSets     map[string]document `json:"ruleSets"`
	Subnets      []string            `json:"subnetIds"`
	IPMode       string              `json:"ipMode"`

	// Version is the version of IP of a network load balancer; the one of load balancers is IPMode.
	Version string `json:"nlbIpVersion"`
	Private bool   `json:"isPrivate"`
	// Protected load balancers cannot be deleted.
	Protected bool `json:"isDeleteProtectionEnabled"`

	// etag is known of what was read alone: listings do not show it.
	etag string
}

type address struct {
	IP       string `json:"ipAddress"`
	Public   bool   `json:"isPublic"`
	Reserved *struct {
		ID string `json:"id"`
	} `json:"reservedIp"`
}

// busy reports whether the cloud works on a load balancer, as far as its state says so.
func (lb *loadBalancer) busy() bool {
	return lb.State == stateCreating || lb.State == stateUpdating || lb.State == stateDeleting
}

// at implements placed.
func (lb *loadBalancer) at() (name, compartment string) { return lb.Name, lb.Compartment }

// backend is a backend of any set. One that was named by its instance may show no address.
type backend struct {
	ip, instance string
	port         int32
}

// backends returns those of all sets; none where there is no load balancer.
func (lb *loadBalancer) backends() (all []backend) {
	if lb == nil {
		return nil
	}
	for _, set := range lb.BackendSets {
		for _, v := range listOf(set["backends"]) {
			d, _ := v.(document)
			ip, _ := d["ipAddress"].(string)
			id, _ := d["targetId"].(string)
			port, _ := d["port"].(float64)
			all = append(all, backend{ip, id, int32(port)})
		}
	}
	return all
}

// subnet is the one of a network load balancer.
func (lb *loadBalancer) subnet() string {
	if len(lb.Subnets) == 0 {
		return ""
	}
	return lb.Subnets[0]
}

// UnmarshalJSON implements json.Unmarshaler: maps that are absent are empty, and the one subnet of a network load balancer is a list.
func (lb *loadBalancer) UnmarshalJSON(data []byte) error {
	type plain loadBalancer
	shown := struct {
		*plain
		Subnet string `json:"subnetId"`
	}{plain: (*plain)(lb)}
	if err := json.Unmarshal(data, &shown); err != nil {
		return err
	}
	if shown.Subnet != "" {
		lb.Subnets = []string{shown.Subnet}
	}
	lb.Version = cmp.Or(lb.Version, versionIPv4)
	for _, m := range []*map[string]document{&lb.Listeners, &lb.BackendSets, &lb.Certificates, &lb.RuleSets} {
		if *m == nil {
			*m = map[string]document{}
		}
	}
	return nil
}

// workRequest is a change that the cloud works on. Those of network load balancers have a status instead of a state, and tell nothing else.
type workRequest struct {
	ID     string `json:"id"`
	Target string `json:"loadBalancerId"`
	State  string `json:"lifecycleState"`
	Status string `json:"status"`
	workError
	Errors []workError `json:"errorDetails"`
}

// workError is why a change failed.
type workError struct {
	Message string `json:"message"`
}

func (w workRequest) running() bool {
	return w.State == workAccepted || w.State == workProgress || w.State == workCanceling
}
