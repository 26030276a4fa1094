package oci

import (
	"cmp"
	"encoding/json"
)

// This file has the objects of the load balancer APIs.

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

	// workPage is how many of a load balancer's work requests are read, newest first. At most one of them runs.
	workPage = "10"
)

// document is a part of a load balancer. It is written back with all its fields, including those that this program does not know.
type document = map[string]any

// fieldOf returns a field of a document, or the zero value.
func fieldOf[T any](d document, name string) T {
	v, _ := d[name].(T)
	return v
}

// documentsIn returns the documents of a list in a field.
func documentsIn(d document, name string) []document {
	list := fieldOf[[]any](d, name)
	all := make([]document, len(list))
	for n, v := range list {
		all[n], _ = v.(document)
	}
	return all
}

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

	// Version is the IP version of a network load balancer. That of load balancers is IPMode.
	Version string `json:"nlbIpVersion"`
	Private bool   `json:"isPrivate"`
	// Protected load balancers cannot be deleted.
	Protected bool `json:"isDeleteProtectionEnabled"`

	// etag is known after a single read only; listings do not show it.
	etag string
}

type address struct {
	IP       string `json:"ipAddress"`
	Public   bool   `json:"isPublic"`
	Reserved *struct {
		ID string `json:"id"`
	} `json:"reservedIp"`
}

// isBusy reports whether the state shows that the cloud works on the load balancer.
func (lb *loadBalancer) isBusy() bool {
	return lb.State == stateCreating || lb.State == stateUpdating || lb.State == stateDeleting
}

// place implements placedObject.
func (lb *loadBalancer) place() (name, compartment string) { return lb.Name, lb.Compartment }

// backend is a backend of any set. One that was named by its instance may show no address.
type backend struct {
	ip, instance string
	port         int32
}

// backends returns the backends of all sets; lb may be nil.
func (lb *loadBalancer) backends() (all []backend) {
	if lb == nil {
		return nil
	}
	for _, set := range lb.BackendSets {
		for _, d := range documentsIn(set, "backends") {
			all = append(all, backend{fieldOf[string](d, "ipAddress"), fieldOf[string](d, "targetId"), int32(fieldOf[float64](d, "port"))})
		}
	}
	return all
}

// subnet returns the subnet of a network load balancer.
func (lb *loadBalancer) subnet() string {
	if len(lb.Subnets) == 0 {
		return ""
	}
	return lb.Subnets[0]
}

// UnmarshalJSON implements json.Unmarshaler. Absent maps and parts become empty, and the one subnet of a network load balancer
// a list.
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
		for name, d := range *m {
			if d == nil {
				(*m)[name] = document{} // a part that exists
			}
		}
	}
	return nil
}

// workRequest is a change on which the cloud works. Those of network load balancers have a status instead of a state, and no other field.
type workRequest struct {
	ID     string `json:"id"`
	Target string `json:"loadBalancerId"`
	State  string `json:"lifecycleState"`
	Status string `json:"status"`
	workError
	Errors []workError `json:"errorDetails"`
}

type workError struct {
	Message string `json:"message"`
}

func (w workRequest) isRunning() bool {
	return w.State == workAccepted || w.State == workProgress || w.State == workCanceling
}
