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
	// Remembered is set if vCenter shows that it exists but not its configuration, which is then the last known.
	Remembered bool
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
	for _, ref := range []types.ManagedObjectReference{m.Parent, m.Pool} {
		if ref.Value != "" {
			return ref
		}
	}
	return m.Host
}

// newMachine reads the properties of a virtual machine.
func newMachine(vcenter string, o types.ObjectContent) (machine, error) {
	m := machine{VCenter: vcenter, Ref: o.Obj}
	if o.Obj.Value == "" {
		return m, unclearError("an incomplete answer: an object in it has no reference")
	}
	for _, p := range o.PropSet {
		m.set(p.Name, p.Val)
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

func (m *machine) set(path string, value any) {
	switch v := value.(type) {
	case string:
		if at := m.text(path); at != nil && v != "" {
			*at = v
		}
	case types.ArrayOfGuestNicInfo:
		m.NICs = v.GuestNicInfo
	case types.VirtualMachinePowerState:
		m.Power = v
	case types.VirtualMachineConnectionState:
		m.Connection = v
	case types.ManagedObjectReference:
		m.setPlace(path, v)
	case types.FaultToleranceSecondaryConfigInfo:
		m.Secondary = true
	case types.FaultToleranceConfigInfo:
		m.Secondary = v.Role > 1
	case bool:
		m.Template = m.Template || v && path == "summary.config.template"
	case int32:
		switch path {
		case "summary.config.numCpu":
			m.CPUs = v
		case "summary.config.memorySizeMB":
			m.MemoryMB = v
		}
	}
}

func (m *machine) setPlace(path string, ref types.ManagedObjectReference) {
	switch path {
	case "runtime.host":
		m.Host = ref
	case "resourcePool":
		m.Pool = ref
	case "parent":
		m.Parent = ref
	}
}

func (m *machine) text(path string) *string {
	switch path {
	case "name":
		return &m.Name
	case "config.uuid", "summary.config.uuid":
		return &m.UUID
	case "summary.config.instanceUuid":
		return &m.InstanceUUID
	case "guest.hostName":
		return &m.HostName
	case "guest.ipAddress":
		return &m.IPAddress
	case "summary.config.guestId":
		return &m.GuestID
	case extraMetadata:
		return &m.Metadata
	case extraEncoding:
		return &m.Encoding
	}
	return nil
}

// fillFrom completes a virtual machine whose configuration is not shown now with remembered data.
func (m machine) fillFrom(before machine) machine {
	shown := m
	m = before
	m.Name, m.Power, m.Connection, m.Problem = cmp.Or(shown.Name, before.Name), shown.Power, shown.Connection, shown.Problem
	m.Remembered = true
	return m
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
	var some []machine
	for _, m := range machines {
		if condition(m) {
			some = append(some, m)
		}
	}
	return some
}
