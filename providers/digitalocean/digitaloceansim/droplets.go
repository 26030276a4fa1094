package digitaloceansim

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Droplet is a droplet as the API shows it.
type Droplet struct {
	ID               int      `json:"id"`
	Name             string   `json:"name"`
	Memory           int      `json:"memory"`
	VCPUs            int      `json:"vcpus"`
	Disk             int      `json:"disk"`
	Locked           bool     `json:"locked"`
	Status           string   `json:"status"`
	CreatedAt        string   `json:"created_at"`
	Features         []string `json:"features"`
	BackupIDs        []int    `json:"backup_ids"`
	NextBackupWindow *window  `json:"next_backup_window"`
	SnapshotIDs      []int    `json:"snapshot_ids"`
	Image            image    `json:"image"`
	VolumeIDs        []string `json:"volume_ids"`
	Size             size     `json:"size"`
	SizeSlug         string   `json:"size_slug"`
	Networks         Networks `json:"networks"`
	Region           Region   `json:"region"`
	Tags             []string `json:"tags"`
	VPCUUID          string   `json:"vpc_uuid"`
	gpu              bool
}

type window struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

type image struct {
	ID           int      `json:"id"`
	Name         string   `json:"name"`
	Distribution string   `json:"distribution"`
	Slug         string   `json:"slug"`
	Public       bool     `json:"public"`
	Regions      []string `json:"regions"`
	CreatedAt    string   `json:"created_at"`
	Type         string   `json:"type"`
	Status       string   `json:"status"`
}

type size struct {
	Slug         string   `json:"slug"`
	Memory       int      `json:"memory"`
	VCPUs        int      `json:"vcpus"`
	Disk         int      `json:"disk"`
	Transfer     float64  `json:"transfer"`
	PriceMonthly float64  `json:"price_monthly"`
	PriceHourly  float64  `json:"price_hourly"`
	Regions      []string `json:"regions"`
	Available    bool     `json:"available"`
	Description  string   `json:"description"`
}

// Networks are a droplet's interfaces.
type Networks struct {
	V4 []NetworkV4 `json:"v4"`
	V6 []NetworkV6 `json:"v6"`
}

// NetworkV4 is an IPv4 address of a droplet.
type NetworkV4 struct {
	IPAddress string `json:"ip_address"`
	Netmask   string `json:"netmask"`
	Gateway   string `json:"gateway"`
	Type      string `json:"type"`
}

// NetworkV6 is an IPv6 address of a droplet.
type NetworkV6 struct {
	IPAddress string `json:"ip_address"`
	Netmask   int    `json:"netmask"`
	Gateway   string `json:"gateway"`
	Type      string `json:"type"`
}

const (
	defaultSize = "s-2vcpu-4gb"
	defaultVPC  = "00000001-5eed-4d00-8000-0000000000ff"
)

// addresses handed out, by droplet number: private ones of a VPC, public ones of the ranges for benchmarks and
// documentation (RFC 2544, RFC 3849), so that no real host is ever named.
var (
	firstPrivate  = netip.MustParseAddr("10.108.0.0").As4()
	firstPublic   = netip.MustParseAddr("198.18.0.0").As4()
	firstPublicV6 = netip.MustParseAddr("2001:db8::").As16()
)

func nth(base [4]byte, n int) string {
	v := binary.BigEndian.Uint32(base[:]) + uint32(n) //nolint:gosec // droplet numbers are small
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b).String()
}

func nthV6(n int) string {
	v := firstPublicV6
	binary.BigEndian.PutUint32(v[12:], uint32(n)) //nolint:gosec // droplet numbers are small
	return netip.AddrFrom16(v).String()
}

// Spec says what a new droplet is like.
type Spec struct {
	Name   string
	Size   string
	Region string
	IPv6   bool
	// PrivateOnly droplets have no public address.
	PrivateOnly bool
	// GPU droplets are left out of plain listings.
	GPU  bool
	Tags []string
}

// AddDroplet adds an active droplet and returns its ID.
func (s *Sim) AddDroplet(spec Spec) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.addDropletLocked(spec).ID
	s.listed.Wrote(s.listedLocked())
	return id
}

func (s *Sim) addDropletLocked(spec Spec) *Droplet {
	if spec.Size == "" {
		spec.Size = defaultSize
	}
	if spec.Region == "" {
		spec.Region = s.region
	}
	s.serial++
	id := 400_000_000 + s.serial
	region, _ := regionOf(spec.Region)
	d := &Droplet{
		ID: id, Name: spec.Name, Memory: 4096, VCPUs: 2, Disk: 80, Status: "active", CreatedAt: timestamp(),
		Features: []string{"private_networking"}, BackupIDs: []int{}, NextBackupWindow: &window{Start: timestamp(), End: timestamp()}, SnapshotIDs: []int{},
		Image: image{
			ID: 1, Name: "24.04 x64", Distribution: "Ubuntu", Slug: "ubuntu-24-04-x64", Public: true, Regions: []string{"nyc3", "fra1"},
			CreatedAt: "2026-01-01T00:00:00Z", Type: "base", Status: "available",
		},
		VolumeIDs: []string{}, SizeSlug: spec.Size, Region: region, Tags: append([]string{}, spec.Tags...), VPCUUID: defaultVPC,
		Size: size{
			Slug: spec.Size, Memory: 4096, VCPUs: 2, Disk: 80, Transfer: 4, PriceMonthly: 24, PriceHourly: 0.03571,
			Regions: []string{"nyc3", "fra1"}, Available: true, Description: "Basic",
		},
		gpu: spec.GPU,
	}
	// The public address comes first: clients must not rely on the order.
	d.Networks = Networks{V4: []NetworkV4{}, V6: []NetworkV6{}}
	if !spec.PrivateOnly {
		d.Networks.V4 = append(d.Networks.V4, NetworkV4{nth(firstPublic, s.serial), "255.254.0.0", nth(firstPublic, 1), "public"})
	}
	d.Networks.V4 = append(d.Networks.V4, NetworkV4{nth(firstPrivate, s.serial), "255.240.0.0", nth(firstPrivate, 1), "private"})
	if spec.IPv6 {
		d.Networks.V6 = append(d.Networks.V6, NetworkV6{nthV6(s.serial), 64, nthV6(1), "public"})
	}
	s.VMs.Put(id, d)
	for _, t := range spec.Tags {
		s.tagLocked(t)[fmt.Sprintf("droplet:%d", id)] = true
	}
	return d
}

// dropletRemoved takes a droplet that is gone out of load balancers and tags.
func (s *Sim) dropletRemoved(id int) {
	for _, lb := range s.loadBalancers {
		lb.DropletIDs = slices.DeleteFunc(lb.DropletIDs, func(d int) bool { return d == id })
	}
	for _, resources := range s.tags {
		delete(resources, fmt.Sprintf("droplet:%d", id))
	}
}

// listDroplets: the name filter ignores case; GPU droplets are listed with type=gpus alone.
func (s *Sim) listDroplets(r *http.Request) (int, any, error) {
	q := r.URL.Query()
	name, tag, kind := q.Get("name"), q.Get("tag_name"), q.Get("type")
	if tag != "" && (name != "" || kind != "") {
		return 0, nil, invalid("tag_name cannot be combined with name or type")
	}
	if kind != "" && kind != "droplets" && kind != "gpus" {
		return 0, nil, invalid("type must be droplets or gpus")
	}
	match, all := []*Droplet{}, s.VMs.All()
	if seen, lags := s.listed.Seen(); lags {
		all = seen.droplets
	}
	for _, d := range all {
		if d.gpu != (kind == "gpus") || (name != "" && !strings.EqualFold(d.Name, name)) || (tag != "" && !slices.Contains(d.Tags, tag)) {
			continue
		}
		match = append(match, d)
	}
	return list(r, "droplets", simkit.Scattered(&s.disorder, match, func(d *Droplet) string { return strconv.Itoa(d.ID) }))
}

func (s *Sim) dropletLocked(text string) (*Droplet, error) {
	id, err := strconv.Atoi(text)
	if err != nil || s.VMs.ByID[id] == nil {
		return nil, errNotFound
	}
	return s.VMs.ByID[id], nil
}

func (s *Sim) getDroplet(id string) (int, any, error) {
	d, err := s.dropletLocked(id)
	return http.StatusOK, map[string]any{"droplet": d}, err
}

// createDroplet serves tools that scale a cluster; the droplet is active at once.
func (s *Sim) createDroplet(r *http.Request) (int, any, error) {
	var in struct {
		Name       string   `json:"name"`
		Region     string   `json:"region"`
		Size       string   `json:"size"`
		Image      any      `json:"image"`
		IPv6       bool     `json:"ipv6"`
		Tags       []string `json:"tags"`
		VPCUUID    string   `json:"vpc_uuid"`
		SSHKeys    []any    `json:"ssh_keys"`
		UserData   string   `json:"user_data"`
		Volumes    []string `json:"volumes"`
		Backups    bool     `json:"backups"`
		Monitoring bool     `json:"monitoring"`
		Private    bool     `json:"private_networking"`
		Public     *bool    `json:"public_networking"`
		Agent      *bool    `json:"with_droplet_agent"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if in.Name == "" || in.Size == "" || in.Image == nil {
		return 0, nil, invalid("name, size and image are required")
	}
	if _, ok := regionOf(in.Region); in.Region != "" && !ok {
		return 0, nil, invalid("You specified an invalid region for Droplet creation.")
	}
	d := s.addDropletLocked(Spec{
		Name: in.Name, Size: in.Size, Region: in.Region, IPv6: in.IPv6, Tags: in.Tags, PrivateOnly: in.Public != nil && !*in.Public,
		GPU: strings.HasPrefix(in.Size, "gpu-"),
	})
	return http.StatusAccepted, map[string]any{"droplet": d, "links": map[string]any{}}, nil
}
