package nsx

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ownTags is how many tags this program may write on an object: owner, cluster, service, port, ippoolid, lbclass, set, was and the marks.
const ownTags = 10

// tag is a tag of an NSX object.
type tag struct {
	Scope string `json:"scope,omitempty"`
	Tag   string `json:"tag,omitempty"`
}

// commonFields holds the fields that all objects of NSX share.
type commonFields struct {
	ID           string `json:"id,omitempty"`
	ResourceType string `json:"resource_type,omitempty"`
	DisplayName  string `json:"display_name,omitempty"`
	Description  string `json:"description,omitempty"`
	Tags         []tag  `json:"tags,omitempty"`
	Path         string `json:"path,omitempty"`
	// Revision is nil if unknown, as after a write without content in the response.
	Revision *int64 `json:"_revision,omitempty"`
	// Deleted is set while NSX is deleting the object.
	Deleted bool `json:"marked_for_delete,omitempty"`

	// rest are unknown fields. A replacement sends them back, so that it changes only our fields.
	rest map[string]json.RawMessage
}

func (o *commonFields) common() *commonFields { return o }

// tag returns the first tag of a scope, which counts.
func (o *commonFields) tag(scope string) string {
	if i := slices.IndexFunc(o.Tags, func(t tag) bool { return t.Scope == scope }); i >= 0 {
		return o.Tags[i].Tag
	}
	return ""
}

// object is an NSX object of any kind.
type object interface{ common() *commonFields }

// objectOf is a pointer to an NSX object of one kind.
type objectOf[V any] interface {
	*V
	object
}

// lbService is a load balancer service.
type lbService struct {
	commonFields
	ConnectivityPath string `json:"connectivity_path,omitempty"`
	Size             string `json:"size,omitempty"`
	Enabled          *bool  `json:"enabled,omitempty"`
}

// virtualServer listens on one port of one address.
type virtualServer struct {
	commonFields
	Enabled            *bool    `json:"enabled,omitempty"`
	IPAddress          string   `json:"ip_address,omitempty"`
	Ports              []string `json:"ports,omitempty"`
	MemberPorts        []string `json:"default_pool_member_ports,omitempty"`
	ApplicationProfile string   `json:"application_profile_path,omitempty"`
	PoolPath           string   `json:"pool_path,omitempty"`
	ServicePath        string   `json:"lb_service_path,omitempty"`
}

// serverPool is the destination of a virtual server's traffic.
type serverPool struct {
	commonFields
	SNAT     *snatTranslation `json:"snat_translation,omitempty"`
	Members  []poolMember     `json:"members,omitempty"`
	Monitors []string         `json:"active_monitor_paths,omitempty"`
	// Algorithm selects the member for a connection.
	Algorithm string `json:"algorithm,omitempty"`
}

type snatTranslation struct {
	Type string `json:"type"`
	// IPAddresses are those of LBSnatIpPool, which this program does not write but sends back.
	IPAddresses json.RawMessage `json:"ip_addresses,omitempty"`
}

// poolMember has all of NSX's fields: remaining members are sent back unchanged.
type poolMember struct {
	AdminState     string `json:"admin_state,omitempty"`
	BackupMember   *bool  `json:"backup_member,omitempty"`
	DisplayName    string `json:"display_name,omitempty"`
	IPAddress      string `json:"ip_address"`
	MaxConnections *int   `json:"max_concurrent_connections,omitempty"`
	Port           string `json:"port,omitempty"`
	Weight         *int   `json:"weight,omitempty"`
}

// monitorProfile is a health check. Only those of the type LBTcpMonitorProfile are this program's.
type monitorProfile struct {
	commonFields
	MonitorPort int `json:"monitor_port,omitempty"`
	// Interval and Timeout are in seconds.
	Interval  int `json:"interval,omitempty"`
	Timeout   int `json:"timeout,omitempty"`
	RiseCount int `json:"rise_count,omitempty"`
	FallCount int `json:"fall_count,omitempty"`
}

// appProfile is an application profile.
type appProfile struct{ commonFields }

// ipPool is a pool of addresses.
type ipPool struct{ commonFields }

// ipAllocation is an address from a pool. It never changes after its creation.
type ipAllocation struct {
	commonFields
	AllocationIP string `json:"allocation_ip,omitempty"`
	AllocatedIP  string `json:"allocated_ip,omitempty"`

	// pool is the ID of the pool that it was listed in.
	pool string
}

// address returns the address in the allocation; older versions of NSX show it only in the realized state.
func (a *ipAllocation) address() string {
	if a.AllocatedIP != "" {
		return a.AllocatedIP
	}
	return a.AllocationIP
}

// staticRoute is a route of a tier-1 gateway.
type staticRoute struct {
	commonFields
	Network  string    `json:"network,omitempty"`
	NextHops []nextHop `json:"next_hops,omitempty"`
}

type nextHop struct {
	IPAddress     string   `json:"ip_address"`
	AdminDistance *int     `json:"admin_distance,omitempty"`
	Scope         []string `json:"scope,omitempty"`
}

// Types of objects.
const (
	typeService       = "LBService"
	typeVirtualServer = "LBVirtualServer"
	typePool          = "LBPool"
	typeTCPMonitor    = "LBTcpMonitorProfile"
	typeTCPProfile    = "LBFastTcpProfile"
	typeUDPProfile    = "LBFastUdpProfile"
)

// realizedEntity is the realized state of an object.
type realizedEntity struct {
	State       string   `json:"state"`
	IntentPaths []string `json:"intent_paths"`
	Attributes  []struct {
		Key    string   `json:"key"`
		Values []string `json:"values"`
	} `json:"extended_attributes"`
	Alarms []struct {
		Message      string `json:"message"`
		ErrorDetails struct {
			Message string `json:"error_message"`
		} `json:"error_details"`
	} `json:"alarms"`
	PublishError string `json:"publish_status_error"`
}

// States of realized entities.
const (
	stateRealized = "REALIZED"
	stateError    = "ERROR"
)

// decodeObject decodes an object, and keeps unknown fields.
func decodeObject(data []byte, o object) error {
	if err := json.Unmarshal(data, o); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, name := range fieldNames(reflect.TypeOf(o).Elem()) {
		delete(all, name)
	}
	o.common().rest = all
	return nil
}

// encodeObject encodes an object with all fields that were read.
func encodeObject(o object) (json.RawMessage, error) {
	data, err := json.Marshal(o)
	if err != nil || len(o.common().rest) == 0 {
		return data, err
	}
	var known map[string]json.RawMessage
	if err := json.Unmarshal(data, &known); err != nil {
		return nil, err
	}
	all := maps.Clone(o.common().rest)
	maps.Copy(all, known)
	return json.Marshal(all)
}

// fieldNames returns the names of a structure's JSON fields.
func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case f.Anonymous:
			names = append(names, fieldNames(f.Type)...)
		case name != "":
			names = append(names, name)
		}
	}
	return names
}

// placeOf returns an object's kind and collection.
func placeOf(x object) (kind, collection string) {
	switch x := x.(type) {
	case *virtualServer:
		return kindServer, pathServers
	case *serverPool:
		return kindPool, pathPools
	case *monitorProfile:
		return kindMonitor, pathMonitors
	case *ipAllocation:
		return kindAllocation, allocationsOf(x.pool)
	}
	return kindService, pathServices
}

func kindOf(x object) string {
	kind, _ := placeOf(x)
	return kind
}

// pathOf returns the path of a load balancer's object.
func pathOf(x object) string {
	_, collection := placeOf(x)
	return pathIn(collection, x)
}

func pathIn(collection string, o object) string { return collection + "/" + o.common().ID }

// titleOf returns the name of an object in messages.
func titleOf(o object) string {
	c := o.common()
	title := kindOf(o) + " " + c.ID
	if c.DisplayName != "" {
		title += " (" + c.DisplayName + ")"
	}
	return title
}
