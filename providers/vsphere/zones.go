package vsphere

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

const (
	// tagsAge is how long tags serve without being read again: they count when a node is initialised, and change when an operator
	// rearranges a datacenter.
	tagsAge = 5 * time.Minute
	// incompleteAge is how soon they are read again for a virtual machine to which they give no zone and region.
	incompleteAge = 10 * time.Second
	// maxDepth bounds the way to the root folder.
	maxDepth = 64
)

// zoneTags holds the tags of the categories for zones and regions.
type zoneTags struct {
	// read is when the reading began.
	read time.Time
	// zones and regions are the names of tags by object.
	zones, regions map[types.ManagedObjectReference]string
}

// place is an object that contains others, such as a folder or a cluster.
type place struct {
	Name   string
	Parent types.ManagedObjectReference
}

// tree holds all places of a vCenter.
type tree map[types.ManagedObjectReference]place

// chain returns an object and all places that contain it, from the inside outwards.
func (t tree) chain(from types.ManagedObjectReference) []types.ManagedObjectReference {
	var list []types.ManagedObjectReference
	for range maxDepth {
		if from.Value == "" {
			break
		}
		list = append(list, from)
		from = t[from].Parent
	}
	return list
}

// path returns the inventory path of an object, followed by names.
func (t tree) path(from types.ManagedObjectReference, names ...string) string {
	for _, ref := range t.chain(from) {
		if name := t[ref].Name; name != "" {
			names = append([]string{name}, names...)
		}
	}
	return "/" + strings.Join(names, "/")
}

const (
	kindDatacenter = "Datacenter"
	kindFolder     = "Folder"
	kindApp        = "VirtualApp"
	// folderOfMachines is the name of the folder with the virtual machines of a datacenter.
	folderOfMachines = "vm"
)

// escapedComma stands for a comma in the name of a datacenter, as vCenter itself writes its separators.
const escapedComma = "%2c"

// datacenters returns all datacenters, true for configured ones: by name, path or reference. Without any these are those below the root
// folder.
func (t tree) datacenters(configured []string, root types.ManagedObjectReference) (map[types.ManagedObjectReference]bool, error) {
	found := map[types.ManagedObjectReference]bool{}
	names := []string{}
	for ref, p := range t {
		if ref.Type == kindDatacenter {
			found[ref] = len(configured) == 0 && p.Parent == root
			names = append(names, t.path(ref))
		}
	}
	slices.Sort(names)
	var problems []error
	for _, wanted := range configured {
		wanted = strings.NewReplacer(escapedComma, ",", strings.ToUpper(escapedComma), ",").Replace(wanted)
		known := false
		for ref := range found {
			if t.isDatacenter(ref, wanted, root) {
				found[ref], known = true, true
			}
		}
		if !known {
			problems = append(problems, fmt.Errorf("there is no datacenter %q, or the account cannot see it; there are %s; correct datacenters "+
				"of the cloud config", wanted, strings.Join(names, ", ")))
		}
	}
	return found, errors.Join(problems...)
}

// references are the beginnings of references. A configured text that has one before its first hyphen is never a name.
func references() []string {
	return []string{"datacenter", "datastore", "domain", "dvportgroup", "dvs", "group", "host", "network", "resgroup", "vm"}
}

func (t tree) isDatacenter(ref types.ManagedObjectReference, wanted string, root types.ManagedObjectReference) bool {
	if id, ok := strings.CutPrefix(wanted, kindDatacenter+":"); ok {
		return ref.Value == id
	}
	if kind, _, ok := strings.Cut(wanted, "-"); ok && slices.Contains(references(), kind) {
		return ref.Value == wanted
	}
	if strings.Contains(wanted, "/") {
		return t.path(ref) == path.Clean("/"+wanted)
	}
	return t[ref].Name == wanted && t[ref].Parent == root
}

// machineFolders returns all folders that may contain virtual machines, and all vApps.
func (t tree) machineFolders() []types.ManagedObjectReference {
	var list []types.ManagedObjectReference
	for ref := range t {
		if ref.Type == kindApp {
			list = append(list, ref)
		}
		if ref.Type != kindFolder {
			continue
		}
		for _, at := range t.chain(ref) {
			if p := t[at]; at.Type == kindFolder && p.Parent.Type == kindDatacenter && p.Name == folderOfMachines {
				list = append(list, ref)
			}
		}
	}
	slices.SortFunc(list, func(a, b types.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) })
	return list
}

// zoneOf returns zone and region of a virtual machine: those of its host's chain, its resource pool's or its folder's, the first that has
// both. Within a chain the outer object counts until both are found, as with vSphere's own controller.
func zoneOf(m machine, t tree, g *zoneTags, labels labelsConfig) (zone, region string, err error) {
	problems := []string{}
	for _, start := range []types.ManagedObjectReference{m.Host, m.Pool, m.Ref} {
		chain := t.chain(start)
		if start == m.Ref {
			chain = append([]types.ManagedObjectReference{m.Ref}, t.chain(m.Parent)...)
		}
		zone, region := "", ""
		for _, at := range chain {
			if name := g.zones[at]; name != "" {
				zone = name
			}
			if name := g.regions[at]; name != "" {
				region = name
			}
			if zone != "" && region != "" {
				return zone, region, nil
			}
		}
		if len(chain) == 0 {
			continue
		}
		lacks, category := "zone", labels.Zone
		if region == "" {
			lacks, category = "region", labels.Region
		}
		problems = append(problems, fmt.Sprintf("vSphere %s category %s does not match any tags for mo: %s", lacks, category, start.Value))
	}
	return "", "", fmt.Errorf("virtual machine %s has no zone and region: %s; attach tags of the categories %s and %s to what it is in",
		m, strings.Join(problems, ", "), labels.Zone, labels.Region)
}

// readZone returns zone and region of a virtual machine. Tags that were read lately serve, unless they have none for it.
func (v *vcenter) readZone(ctx context.Context, m machine, labels labelsConfig) (zone, region string, err error) {
	v.zonesMu.Lock()
	defer v.zonesMu.Unlock()
	t, g := v.known.currentTree(), v.zones
	if g != nil && time.Since(g.read) < tagsAge {
		zone, region, err = zoneOf(m, t, g, labels)
		if err == nil || time.Since(g.read) < incompleteAge {
			return zone, region, err
		}
	}
	began := time.Now()
	if g, err = v.readZoneTags(ctx, labels); err != nil {
		return "", "", err
	}
	g.read = began
	v.zones = g
	return zoneOf(m, t, g, labels)
}
