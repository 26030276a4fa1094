// Package photonsim simulates the part of VMware Photon Controller's API that the provider uses, in each dialect, and Lightwave's token
// endpoint.
package photonsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	// User is the only user.
	User = "kube@photon.local"
	// Project is the only project.
	Project = "p1"
	// Password is the user's.
	Password = "a&b+c=d e%f"
	// maxPage is the maximum page size.
	maxPage = 100
	// Started is the state of a running virtual machine.
	Started = "STARTED"
)

// Dialect is a generation of the API.
type Dialect struct {
	// Root is the prefix of all paths, Auth the path about authentication, and Networks the word for subnets.
	Root, Auth, Networks string
}

// Oldest is the API of 0.9.
func Oldest() Dialect { return Dialect{"", "/auth", "networks"} }

// Old is the API of 1.0 and 1.1.
func Old() Dialect { return Dialect{"", "/auth", "subnets"} }

// Interim is the API that the SDK in Kubernetes uses.
func Interim() Dialect { return Dialect{"/v1", "/v1/auth", "subnets"} }

// New12 is the API of 1.2.
func New12() Dialect { return Dialect{"/v1", "/v1/system/auth", "subnets"} }

// Connection is a network interface in a task's result. A nil IP is unknown.
type Connection struct {
	Network   *string `json:"network"`
	MAC       string  `json:"macAddress"`
	IP        *string `json:"ipAddress"`
	Netmask   *string `json:"netmask"`
	Connected string  `json:"isConnected"`
}

// VM is a virtual machine.
type VM struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	State      string            `json:"state"`
	Flavor     *string           `json:"flavor"`
	Host       *string           `json:"host"`
	Datastore  *string           `json:"datastore"`
	FloatingIP *string           `json:"floatingIp"`
	Tags       []string          `json:"tags"`
	Metadata   map[string]string `json:"metadata"`
	SelfLink   string            `json:"selfLink"`

	// Connections are the result of tasks that read the networks, unless Properties replaces it.
	Connections []Connection `json:"-"`
	Properties  string       `json:"-"`
	// Fails is the error message of these tasks. With Stuck they never end.
	Fails string `json:"-"`
	Stuck bool   `json:"-"`
}

// On returns connections for pairs of a MAC address and an IP address; "" for none.
func On(pairs ...string) (list []Connection) {
	for pair := range slices.Chunk(pairs, 2) {
		c := Connection{MAC: pair[0], Connected: "True"}
		if pair[1] != "" {
			mask := "255.255.255.0"
			c.IP, c.Netmask = &pair[1], &mask
		}
		list = append(list, c)
	}
	return list
}

// task shows a state for some polls, and then its result.
type task struct {
	id   string
	vm   *VM
	seen int
}

// Sim is a simulated Photon Controller.
type Sim struct {
	mu simkit.Mutex
	simkit.Machines[string, VM]
	// Tokens are the user's.
	simkit.Tokens
	// Paused pauses the whole system. Rootless omits the root from links between pages, as old servers do.
	Paused, Rootless bool
	// Expires is how many requests for later pages answer that the page has expired.
	Expires int

	dialect Dialect
	auth    bool
	// authHost and authPort are the token endpoint.
	authHost string
	authPort int

	number, tasksMade int
	tasks             map[string]*task
	order             simkit.Disorder
}

// New returns a simulated Photon Controller without virtual machines and without authentication.
func New(dialect Dialect, seed uint64) (*Sim, *simkit.Server) {
	s := &Sim{dialect: dialect, tasks: map[string]*task{}}
	s.Tokens = simkit.Tokens{
		Lock: &s.mu, User: User, Password: Password, Scope: "openid offline_access rs_photon_platform at_groups", Renews: true,
	}
	s.Machines = simkit.Machines[string, VM]{
		Lock: &s.mu, On: Started, Off: "STOPPED", Status: func(v *VM) *string { return &v.State }, Make: func(name string) { s.Add(name) },
		About: func(v *VM) simkit.Instance {
			return simkit.Instance{Name: v.Name, ProviderID: "photon://" + v.ID, Status: v.State}
		},
	}
	s.order.Seed(seed)
	return s, simkit.New(s)
}

// NewServer has the signature common to all simulators.
func NewServer(_ string, _ time.Duration, _ bool) *simkit.Server {
	_, server := New(New12(), 0)
	return server
}

// Authenticate enables authentication; host and port are the token endpoint.
func (s *Sim) Authenticate(host string, port int) {
	s.mu.Do(func() { s.auth, s.authHost, s.authPort = true, host, port })
}

// Add creates a running virtual machine with one network interface.
func (s *Sim) Add(name string, change ...func(*VM)) *VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	n := s.number
	flavor, host := "cluster-node", "10.1.0.3"
	v := &VM{
		ID: fmt.Sprintf("4f9b3b9e-7c11-4e0a-9c55-%012x", n), Name: name, Kind: "vm", State: Started, Flavor: &flavor, Host: &host,
		Connections: On(fmt.Sprintf("00:50:56:00:%02x:%02x", n/250, n%250), fmt.Sprintf("10.9.%d.%d", n/250, n%250+1)),
	}
	v.SelfLink = s.dialect.Root + "/vms/" + v.ID
	for _, f := range change {
		f(v)
	}
	return s.VMs.Put(v.ID, v)
}

// Change changes the simulator's behaviour.
func (s *Sim) Change(change func(*Sim)) { s.mu.Do(func() { change(s) }) }

// Tasks counts the created tasks.
func (s *Sim) Tasks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasksMade
}

// CloudConfig implements simkit.CloudConfigurer.
func (*Sim) CloudConfig(url string) string {
	return "[Global]\ntarget = " + url + "\nproject = " + Project + "\n"
}

// Variables returns the environment of a controller without a cloud config.
func (*Sim) Variables(url string) map[string]string {
	return map[string]string{"PHOTON_TARGET": url, "PHOTON_PROJECT": Project}
}

// Distort implements simkit.Cloud.
func (s *Sim) Distort() map[string]simkit.Distortion {
	listing := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/projects/"+Project+"/vms")
	}
	return map[string]simkit.Distortion{
		// empty-list: a complete but empty listing.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			return []byte(`{"items":[],"nextPageLink":null,"previousPageLink":null}`), listing(r)
		},
		// cut-list: the document is truncated.
		"cut-list": func(r *http.Request, body []byte) ([]byte, bool) { return body[:len(body)/2], listing(r) },
	}
}
