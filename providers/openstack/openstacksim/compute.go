package openstacksim

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Flavor is a size of servers.
type Flavor struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	RAM   int    `json:"ram"`
	VCPUs int    `json:"vcpus"`
	Disk  int    `json:"disk"`
}

// Server is a virtual machine.
type Server struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Zone       string            `json:"OS-EXT-AZ:availability_zone"`
	Tenant     string            `json:"tenant_id"`
	Metadata   map[string]string `json:"metadata"`
	AccessIPv4 string            `json:"accessIPv4"`
	AccessIPv6 string            `json:"accessIPv6"`
	Image      string            `json:"image"`
	FlavorID   string            `json:"-"`
}

// Spec describes a server to add.
type Spec struct {
	Name string
	// Networks are the IDs of networks; empty means the internal network that exists from the start.
	Networks []string
	Zone     string
	FlavorID string
	Metadata map[string]string
	// AccessIPv4 and AccessIPv6 are Nova's fields of the same names.
	AccessIPv4, AccessIPv6 string
	// NoPortSecurity makes ports without it.
	NoPortSecurity bool
}

// AddServer starts a server and returns its ID.
func (s *Sim) AddServer(spec Spec) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.newID(0x50)
	if spec.FlavorID == "" {
		spec.FlavorID = "1"
	}
	if spec.Zone == "" {
		spec.Zone = "nova"
	}
	if spec.Metadata == nil {
		spec.Metadata = map[string]string{}
	}
	s.VMs.Put(id, &Server{
		ID: id, Name: spec.Name, Status: "ACTIVE", Zone: spec.Zone, Tenant: Project, Metadata: spec.Metadata, FlavorID: spec.FlavorID,
		AccessIPv4: spec.AccessIPv4, AccessIPv6: spec.AccessIPv6,
	})
	if len(spec.Networks) == 0 {
		spec.Networks = []string{s.seedNet}
	}
	for _, n := range spec.Networks {
		fixed := []FixedIP{}
		for _, sub := range s.subnets.All() {
			if sub.NetworkID == n {
				fixed = append(fixed, FixedIP{sub.ID, s.allocate(sub)})
			}
		}
		s.addPortLocked(&Port{NetworkID: n, DeviceID: id, DeviceOwner: "compute:" + spec.Zone, FixedIPs: fixed, PortSecurity: !spec.NoPortSecurity})
	}
	return id
}

// serverRemoved removes the ports of a server that is gone.
func (s *Sim) serverRemoved(v *Server) {
	for _, p := range s.ports.All() {
		if p.DeviceID == v.ID {
			s.removePort(p.ID)
		}
	}
}

// RemoveFlavor deletes a flavor; servers that have it stay.
func (s *Sim) RemoveFlavor(id string) { s.mu.Do(func() { s.flavors.Remove(id) }) }

// AddFlavor adds a flavor.
func (s *Sim) AddFlavor(id, name string) {
	s.mu.Do(func() { s.flavors.Put(id, &Flavor{ID: id, Name: name, RAM: 1024, VCPUs: 1, Disk: 10}) })
}

// SetNovaMicroversion sets the newest microversion of Nova, 2.x.
func (s *Sim) SetNovaMicroversion(minor int) { s.mu.Do(func() { s.novaMaxMinor = minor }) }

// minorOf reads the microversion that a request asks for.
func (s *Sim) minorOf(r *http.Request) (int, error) {
	text := r.Header.Get("X-Openstack-Nova-Api-Version")
	if v, ok := strings.CutPrefix(r.Header.Get("Openstack-Api-Version"), "compute "); ok {
		text = v
	}
	if text == "" {
		return 1, nil
	}
	minor, err := strconv.Atoi(strings.TrimPrefix(text, "2."))
	if err != nil || minor > s.novaMaxMinor {
		return 0, failure(http.StatusNotAcceptable, "computeFault", "Version %s is not supported by the API. Minimum is 2.1 and maximum is 2.%d.", text, s.novaMaxMinor)
	}
	return minor, nil
}

// embeddedFlavors is the microversion from which a server carries its flavor's name instead of its ID.
const embeddedFlavors = 47

func (s *Sim) showServer(v *Server, minor int) map[string]any {
	object := attributes(v)
	addresses := map[string][]any{}
	for _, p := range s.ports.All() {
		if p.DeviceID != v.ID {
			continue
		}
		name := s.networks.ByID[p.NetworkID].Name
		for _, f := range p.FixedIPs {
			version := 4
			if a, err := netip.ParseAddr(f.Address); err == nil && a.Is6() {
				version = 6
			}
			addresses[name] = append(addresses[name], map[string]any{"addr": f.Address, "version": version, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": p.MAC})
		}
		for _, f := range s.floating.All() {
			if deref(f.PortID) == p.ID {
				addresses[name] = append(addresses[name], map[string]any{"addr": f.Address, "version": 4, "OS-EXT-IPS:type": "floating", "OS-EXT-IPS-MAC:mac_addr": p.MAC})
			}
		}
	}
	object["addresses"] = addresses
	object["created"], object["updated"] = "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"
	if minor >= embeddedFlavors {
		name := "gone"
		if f := s.flavors.ByID[v.FlavorID]; f != nil {
			name = f.Name
		}
		object["flavor"] = map[string]any{
			"original_name": name, "ram": 2048, "vcpus": 1, "disk": 20, "ephemeral": 0, "swap": 0, "extra_specs": map[string]string{},
		}
	} else {
		object["flavor"] = map[string]any{"id": v.FlavorID, "links": []any{}}
	}
	return object
}

// novaPage is the default of osapi_max_limit.
const novaPage = 1000

func (s *Sim) compute(w http.ResponseWriter, r *http.Request, rest string) error {
	minor, err := s.minorOf(r)
	if err != nil {
		return err
	}
	if r.Method != http.MethodGet {
		return failure(http.StatusMethodNotAllowed, "badMethod", "not simulated")
	}
	parts := strings.Split(rest, "/")
	switch {
	case rest == "servers/detail":
		items := []any{}
		for _, v := range s.VMs.All() {
			items = append(items, s.showServer(v, minor))
		}
		limit := s.pageLimit
		defer func() { s.pageLimit = limit }()
		if s.pageLimit == 0 {
			s.pageLimit = novaPage
		}
		return s.listing(w, r, "servers", items, func(object map[string]any, name, value string) (bool, error) {
			if name != "name" {
				return false, failure(http.StatusBadRequest, "badRequest", "the filter %s is not simulated", name)
			}
			return regexp.MatchString(value, fmt.Sprint(object["name"]))
		})
	case len(parts) == 2 && parts[0] == "servers":
		v := s.VMs.ByID[parts[1]]
		if v == nil {
			return failure(http.StatusNotFound, "itemNotFound", "Instance %s could not be found.", parts[1])
		}
		write(w, http.StatusOK, map[string]any{"server": s.showServer(v, minor)})
		return nil
	case rest == "flavors/detail":
		return s.listing(w, r, "flavors", anys(s.flavors.All()), equalFilter)
	case len(parts) == 2 && parts[0] == "flavors":
		f := s.flavors.ByID[parts[1]]
		if f == nil {
			return failure(http.StatusNotFound, "itemNotFound", "Flavor %s could not be found.", parts[1])
		}
		write(w, http.StatusOK, map[string]any{"flavor": f})
		return nil
	}
	return failure(http.StatusNotFound, "", "not simulated: %s", slices.Concat([]string{r.Method}, parts))
}
