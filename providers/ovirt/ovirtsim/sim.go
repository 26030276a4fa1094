// Package ovirtsim simulates the part of oVirt's engine that the provider uses: its single sign-on and its REST API in XML and JSON.
package ovirtsim

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	// User is the only user of a new engine.
	User = "ccm@internal"
	// Password is that user's.
	Password = "a&b+c=d@e%f"
	// idle is how long a token lives without being used.
	idle = 30 * time.Minute
	// Listing is the operation that lists virtual machines.
	Listing = "GET /ovirt-engine/api/vms"

	statusUp = "up"
)

// Device is a network interface as the guest agent reports it.
type Device struct {
	Name, MAC string
	// IPs are its addresses: first those of IPv4, as the engine orders them.
	IPs []string
}

// NIC is a network interface of a virtual machine.
type NIC struct{ ID, Name, MAC string }

// VM is a virtual machine. What its guest reports is shown while it runs.
type VM struct {
	ID, Name, FQDN string
	// Status is "" for a machine with an illegal image, of which the API shows no status.
	Status, StatusDetail string
	Host                 string
	Cluster              string
	InstanceType         string
	Tags                 []string
	NICs                 []NIC
	Devices              []Device

	number int
}

// isOff reports whether the engine shows neither host nor what the guest reports.
func (v *VM) isOff() bool {
	return slices.Contains([]string{"", "down", "suspended", "image_locked"}, v.Status)
}

// named is embedded by objects with an ID and a name.
type named struct{ ID, Name string }

// Cluster is a cluster in a data center.
type Cluster struct{ ID, Name, DataCenter string }

// The clusters and data centers of a new engine.
const (
	ClusterID    = "c0000000-0000-0000-0000-000000000001"
	DataCenterID = "d0000000-0000-0000-0000-000000000001"
	typeID       = "e0000000-0000-0000-0000-000000000001"
	hostID       = "b0000000-0000-0000-0000-000000000001"
	templateID   = "00000000-0000-0000-0000-000000000000"
)

// Sim is a simulated engine.
type Sim struct {
	mu simkit.Mutex
	simkit.Machines[string, VM]
	// Tokens are the user's.
	simkit.Tokens
	number int

	clusters    []Cluster
	dataCenters []named
	types       []named

	// filtered is set for a user without an administrator's role, who sees what he has a permission on.
	filtered  bool
	permitted map[string]bool
	// hidden are kinds of objects that the user may not list.
	hidden map[string]bool

	order simkit.Disorder
}

// New returns a simulated engine without virtual machines.
func New(seed uint64) (*Sim, *simkit.Server) {
	s := &Sim{
		hidden:      map[string]bool{},
		clusters:    []Cluster{{ID: ClusterID, Name: "Default", DataCenter: DataCenterID}},
		dataCenters: []named{{ID: DataCenterID, Name: "Berlin"}},
		types:       []named{{ID: typeID, Name: "Large"}},
	}
	s.Tokens = simkit.Tokens{Lock: &s.mu, User: User, Password: Password, Scope: "ovirt-app-api", Idle: idle}
	s.Machines = simkit.Machines[string, VM]{
		Lock: &s.mu, On: statusUp, Off: "down", Status: func(v *VM) *string { return &v.Status }, Make: func(name string) { s.Add(name) },
		About: func(v *VM) simkit.Instance {
			return simkit.Instance{Name: v.Name, ProviderID: "ovirt://" + v.ID, Status: v.Status}
		},
	}
	s.order.Seed(seed)
	return s, simkit.New(s)
}

// NewServer returns the simulator for programs that know simulators only in general.
func NewServer(password string, _ time.Duration, _ bool) *simkit.Server {
	s, server := New(0)
	if password != "" {
		s.Password = password
	}
	return server
}

// Add makes a virtual machine that runs, with one network interface. change may change it before anybody sees it.
func (s *Sim) Add(name string, change ...func(*VM)) *VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	n := s.number
	mac := fmt.Sprintf("56:6f:%02x:%02x:00:01", n/250, n%250)
	v := &VM{
		ID: fmt.Sprintf("5f3ae1c0-7b1d-4e0a-9c55-%012x", n), Name: name, FQDN: name + ".example.com", Status: statusUp, Host: hostID,
		Cluster: ClusterID, InstanceType: typeID, number: n,
		NICs:    []NIC{{ID: fmt.Sprintf("a1c00000-0000-0000-0000-%012x", n), Name: "nic1", MAC: mac}},
		Devices: []Device{{Name: "eth0", MAC: mac, IPs: []string{fmt.Sprintf("10.35.%d.%d", n/250, n%250+1), "fe80::566f:ff:fe00:1"}}},
	}
	for _, f := range change {
		f(v)
	}
	return s.VMs.Put(v.ID, v)
}

// Permit makes the user one without an administrator's role, who sees these virtual machines alone.
func (s *Sim) Permit(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filtered, s.permitted = true, map[string]bool{}
	for _, id := range ids {
		s.permitted[id] = true
	}
}

// Hide makes a kind of objects one that the user may not list: clusters, datacenters or instancetypes.
func (s *Sim) Hide(kind string) { s.mu.Do(func() { s.hidden[kind] = true }) }

// SetPlaces replaces clusters and data centers, which are given by ID and name.
func (s *Sim) SetPlaces(clusters []Cluster, dataCenters map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters, s.dataCenters = clusters, nil
	for id, name := range dataCenters {
		s.dataCenters = append(s.dataCenters, named{id, name})
	}
}

// SetType renames the instance type of all virtual machines.
func (s *Sim) SetType(name string) { s.mu.Do(func() { s.types[0].Name = name }) }

// visible are the virtual machines that the user may see.
func (s *Sim) visible() []*VM {
	if !s.filtered {
		return s.VMs.All()
	}
	var seen []*VM
	for _, v := range s.VMs.All() {
		if s.permitted[v.ID] {
			seen = append(seen, v)
		}
	}
	return seen
}

// CloudConfig implements simkit.CloudConfigurer.
func (s *Sim) CloudConfig(url string) string {
	v := s.Variables(url)
	return fmt.Sprintf("[connection]\nuri = %s\nusername = %s\npassword = %q\n", v["OVIRT_URL"], v["OVIRT_USERNAME"], v["OVIRT_PASSWORD"])
}

// Variables are the environment of a controller that talks to this engine without a cloud config.
func (s *Sim) Variables(url string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]string{"OVIRT_URL": url + apiRoot, "OVIRT_USERNAME": User, "OVIRT_PASSWORD": s.Password}
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	listing := func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path == apiRoot+"/vms" }
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as a user without permissions sees it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) { return []byte(`{}`), listing(r) },
		// cut-list: the document ends in its middle.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) { return body[:len(body)/2], listing(r) },
		// other-list: an object in JSON that is no listing of the engine.
		"other-list": func(r *http.Request, _ []byte) ([]byte, bool) { return []byte(`{"status":"ok"}`), listing(r) },
		// fault-list: a fault with the status of success.
		"fault-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			return []byte(`{"reason":"Operation Failed","detail":"Internal Engine Error"}`), listing(r)
		},
	}
}
