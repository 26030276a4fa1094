package vsphere

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// machine is a virtual machine as one vCenter shows it.
type machine struct {
	// VCenter is the key of its vCenter; Ref its reference there.
	VCenter string
	Ref     types.ManagedObjectReference
	Name    string
	UUID    string
	// InstanceUUID is vCenter's own, which provider IDs do not use.
	InstanceUUID string
	// Template machines never run.
	Template bool
	// Secondary machines are shadows of one protected by Fault Tolerance, with its UUID and guest.
	Secondary  bool
	HostName   string
	IPAddress  string
	NICs       []types.GuestNicInfo
	Power      types.VirtualMachinePowerState
	Connection types.VirtualMachineConnectionState
	// Host, Pool and Parent are the first links of the three chains of places that contain it.
	Host, Pool, Parent types.ManagedObjectReference
	GuestID            string
	CPUs, MemoryMB     int32
	// Metadata and Encoding are the input of cloud-init.
	Metadata, Encoding string
	// Path is its inventory path; Outside is set if that is in none of the configured datacenters.
	Path    string
	Outside bool
	// Problem is why it could not be read now.
	Problem error
}

const (
	extraMetadata = `config.extraConfig["guestinfo.metadata"].value`
	extraEncoding = `config.extraConfig["guestinfo.metadata.encoding"].value`
	// pathFaultTolerance is the property with the role in Fault Tolerance; most machines have none.
	pathFaultTolerance = "config.ftInfo"
)

// paths are the properties to read: whole objects are ten to fifty times as large.
func paths() []string {
	return []string{
		"name", "config.uuid", "summary.config.uuid", "summary.config.instanceUuid", "summary.config.template", pathFaultTolerance,
		"guest.hostName", "guest.ipAddress", "guest.net",
		"runtime.powerState", "runtime.connectionState", "runtime.host", "resourcePool", "parent", "summary.config.guestId",
		"summary.config.numCpu", "summary.config.memorySizeMB", extraMetadata, extraEncoding,
	}
}

// place returns the parent of a virtual machine: its folder, or its vApp or resource pool if it has no folder, as in vApps.
func (m machine) place() types.ManagedObjectReference {
	return cmp.Or(m.Parent, m.Pool, m.Host)
}

// newMachine reads the properties of a virtual machine.
func newMachine(vcenter string, o types.ObjectContent) (machine, error) {
	m := machine{VCenter: vcenter, Ref: o.Obj}
	if o.Obj.Value == "" {
		return m, unclearError("an incomplete answer: an object in it has no reference")
	}
	fields := m.fields()
	for _, p := range o.PropSet {
		m.set(fields[p.Name], p.Val)
	}
	m.UUID = strings.ToLower(strings.TrimSpace(m.UUID))
	for _, missing := range o.MissingSet {
		switch f := missing.Fault.Fault.(type) {
		case *types.NotAuthenticated:
			return m, errSessionEnded
		case *types.InvalidProperty:
			// A vCenter that is too old for it.
		default:
			if !isOptional(missing.Path) {
				m.Problem = fmt.Errorf("virtual machine %s (%s) in vCenter %s: property %s is refused: %s",
					cmp.Or(m.Name, "without a name"), m.Ref.Value, vcenter, missing.Path, missingText(f, missing.Fault.LocalizedMessage))
			}
		}
	}
	return m, nil
}

// isOptional reports properties that are not required.
func isOptional(path string) bool {
	return slices.Contains([]string{
		extraMetadata, extraEncoding, pathFaultTolerance, "runtime.host", "resourcePool", "parent", "guest.ipAddress", "summary.config.instanceUuid",
	}, path)
}

func missingText(f any, message string) string {
	if f, ok := f.(*types.NoPermission); ok {
		return "the account lacks " + f.PrivilegeId
	}
	return cmp.Or(message, strings.TrimPrefix(fmt.Sprintf("%T", f), "*types."))
}

// fields returns where properties are kept. The network interfaces and the role in Fault Tolerance are known by their types.
func (m *machine) fields() map[string]any {
	return map[string]any{
		"name": &m.Name, "config.uuid": &m.UUID, "summary.config.uuid": &m.UUID, "summary.config.instanceUuid": &m.InstanceUUID,
		"summary.config.template": &m.Template, "guest.hostName": &m.HostName, "guest.ipAddress": &m.IPAddress,
		"runtime.powerState": &m.Power, "runtime.connectionState": &m.Connection,
		"runtime.host": &m.Host, "resourcePool": &m.Pool, "parent": &m.Parent, "summary.config.guestId": &m.GuestID,
		"summary.config.numCpu": &m.CPUs, "summary.config.memorySizeMB": &m.MemoryMB, extraMetadata: &m.Metadata, extraEncoding: &m.Encoding,
	}
}

// set stores the value of a property. An empty text is none: a UUID has two properties.
func (m *machine) set(field, value any) {
	switch v := value.(type) {
	case types.ArrayOfGuestNicInfo:
		m.NICs = v.GuestNicInfo
	case types.FaultToleranceSecondaryConfigInfo:
		m.Secondary = true
	case types.FaultToleranceConfigInfo:
		m.Secondary = v.Role > 1
	case string:
		if v != "" {
			store(field, v)
		}
	case types.VirtualMachinePowerState:
		store(field, v)
	case types.VirtualMachineConnectionState:
		store(field, v)
	case types.ManagedObjectReference:
		store(field, v)
	case bool:
		store(field, v)
	case int32:
		store(field, v)
	}
}

// store stores a value in a field of its type.
func store[V any](field any, value V) {
	if at, ok := field.(*V); ok {
		*at = value
	}
}

// fillFrom completes a virtual machine whose configuration is not shown now with remembered data.
func (m machine) fillFrom(before machine) machine {
	before.Name, before.Power, before.Connection, before.Problem = cmp.Or(m.Name, before.Name), m.Power, m.Connection, m.Problem
	return before
}

// String returns its name for messages.
func (m machine) String() string {
	return fmt.Sprintf("%s (%s in vCenter %s)", m.Name, m.Ref.Value, m.VCenter)
}

// instance holds the virtual machines with one UUID: one, or also copies of it.
type instance struct {
	ID       string
	Machines []machine
}

// groupByUUID groups virtual machines by UUID. Templates are left out: they never run, and share their copies' UUIDs.
func groupByUUID(machines []machine) []instance {
	at := map[string]int{}
	var all []instance
	for _, m := range machines {
		id := canonicalUUID(m.UUID)
		if m.Template || id == "" {
			continue
		}
		if i, known := at[id]; known {
			all[i].Machines = append(all[i].Machines, m)
			continue
		}
		at[id] = len(all)
		all = append(all, instance{id, []machine{m}})
	}
	for _, i := range all {
		slices.SortFunc(i.Machines, func(a, b machine) int {
			return cmp.Or(cmp.Compare(a.VCenter, b.VCenter), cmp.Compare(a.Ref.Value, b.Ref.Value))
		})
	}
	return all
}

// chooseMachine returns the machine of an instance: among several the one that is no shadow, then the running one, and among several
// running ones the one with the host name.
func (i instance) chooseMachine(hostName string) (machine, error) {
	candidates := i.Machines
	if own := filter(candidates, func(m machine) bool { return !m.Secondary }); len(own) > 0 {
		candidates = own
	}
	if running := filter(candidates, func(m machine) bool { return m.Power == types.VirtualMachinePowerStatePoweredOn }); len(running) > 0 {
		candidates = running
	}
	if same := filter(candidates, func(m machine) bool { return strings.EqualFold(m.HostName, hostName) }); hostName != "" && len(same) == 1 {
		candidates = same
	}
	if len(candidates) != 1 {
		names := make([]string, len(candidates))
		for n, m := range candidates {
			names[n] = m.String()
		}
		return machine{}, fmt.Errorf("the UUID %s is that of %d virtual machines: %s; give all but one another UUID",
			i.ID, len(candidates), strings.Join(names, ", "))
	}
	return candidates[0], candidates[0].Problem
}

func filter(machines []machine, condition func(machine) bool) []machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m machine) bool { return !condition(m) })
}
