// Package vspheresim simulates vCenter, and an NSX beside it: govmomi's own simulator is the vCenter, behind what it lacks. It adds
// passwords that can be refused, permissions, virtual machines that are not accessible, searches as strict as vCenter's, faults, and
// counts of calls.
package vspheresim

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	_ "github.com/vmware/govmomi/lookup/simulator" // registers the endpoint
	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/sts/simulator"  // registers the endpoint
	_ "github.com/vmware/govmomi/vapi/simulator" // registers the endpoint
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// User is the only user of a new simulator, and Password its password.
const (
	User     = "ccm@vsphere.local"
	Password = "ccm-password"
)

// Options set up a simulator.
type Options struct {
	// Datacenters is how many there are, DC0 and so on; 0 means one.
	Datacenters int
	// InFolders puts each datacenter into a folder, F0 and so on.
	InFolders bool
	// InstanceUUID is the identity of the vCenter; "" means one of its own.
	InstanceUUID string
	// NSX puts one beside the vCenter, at the same address.
	NSX bool
	// Activation is how long changes of NSX take.
	Activation time.Duration
	// Seed makes its listings come in an order that nobody promises.
	Seed uint64
}

// Sim is the simulated vCenter. All methods are safe for concurrent use.
type Sim struct {
	// NSX is nil where there is none.
	NSX *nsxsim.Sim

	// serving is held while a call is served and while something is changed: govmomi's simulator lets its objects be changed only
	// from within.
	serving turn
	// disorder is that of its listings.
	disorder simkit.Disorder

	mu       simkit.Mutex
	model    *simulator.Model
	handler  http.Handler
	password string
	serial   int
	machines []*Machine
	// unreadable are folders that the account may not read.
	unreadable map[types.ManagedObjectReference]bool
	hidden     map[types.ManagedObjectReference]*simulator.VirtualMachine
	// forgetful is set where the next question about changes is about a version that nobody knows.
	forgetful bool
	failed    int
	urns      map[string]string
	logins    int
}

// turn is a lock that virtual time goes on beside: govmomi's simulator sleeps while it looks for changes.
type turn chan struct{}

// Lock takes the turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives it back.
func (t turn) Unlock() { <-t }

// Machine is a virtual machine of the simulator.
type Machine struct {
	Name       string                       `json:"name"`
	UUID       string                       `json:"uuid"`
	Ref        types.ManagedObjectReference `json:"ref"`
	Datacenter string                       `json:"datacenter"`

	vm *simulator.VirtualMachine
}

// Spec says which virtual machine to make. Empty fields get usual values.
type Spec struct {
	Name, UUID, HostName, Datacenter, GuestID string
	NICs                                      []types.GuestNicInfo
	Off, Template, NoTools                    bool
	// Secondary shadows another one, as Fault Tolerance has it.
	Secondary                        bool
	CPUs, MemoryMB                   int32
	Metadata, Encoding, InstanceUUID string
}

// making is held while a vCenter is made: govmomi's simulator writes what all of its instances share then, its licences and URLs.
var making sync.Mutex

// New returns a vCenter with a cluster of two hosts in each datacenter.
func New(o Options) (*Sim, *simkit.Server) {
	making.Lock()
	defer making.Unlock()
	model := simulator.VPX()
	model.Datacenter, model.Cluster, model.ClusterHost, model.Host, model.Machine = max(o.Datacenters, 1), 1, 2, 0, 0
	model.Datastore, model.Portgroup, model.Folder = 0, 0, 0
	if o.InFolders {
		model.Folder = 1
	}
	if err := model.Create(); err != nil {
		panic(fmt.Sprintf("making the inventory: %v", err)) // it is the same each time
	}
	model.Remove() // its folder on the disk, which only datastores of its own would use
	s := &Sim{
		model: model, password: Password, unreadable: map[types.ManagedObjectReference]bool{},
		hidden: map[types.ManagedObjectReference]*simulator.VirtualMachine{}, serving: make(turn, 1),
	}
	s.disorder.Seed(o.Seed)
	if o.NSX {
		s.NSX = nsxsim.NewSim(nsxsim.Options{User: NSXUser, Password: NSXPassword, Activation: o.Activation, Seed: o.Seed})
	}
	service := model.Service
	service.RegisterEndpoints = true
	service.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(User, Password)}
	listening := service.NewServer()
	s.handler = service.ServeMux
	listening.Close() // it is served by simkit
	m := model.Map()
	m.SessionManager().ValidLogin = func(l *types.Login) bool { return s.accepts(l.UserName, l.Password) }
	if o.InstanceUUID != "" {
		instance(m).Content.About.InstanceUuid = o.InstanceUUID
	}
	m.Handler = s.intercept
	return s, simkit.New(s)
}

func instance(m *simulator.Registry) *simulator.ServiceInstance {
	i, _ := m.Get(types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"}).(*simulator.ServiceInstance)
	return i
}

// NewServer returns the simulator for programs that know simulators only in general; token is the password. vCenter publishes no limits.
func NewServer(token string, activation time.Duration, _ bool) *simkit.Server {
	s, server := New(Options{NSX: true, Activation: activation})
	if token != "" {
		s.SetPassword(token)
	}
	return server
}

func (s *Sim) accepts(user, password string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if user == User && password == s.password {
		s.logins++
		return true
	}
	s.failed++
	return false
}

// SetPassword changes the password. Sessions that are open go on.
func (s *Sim) SetPassword(password string) { s.mu.Do(func() { s.password = password }) }

// Logins returns how many logins were accepted and refused.
func (s *Sim) Logins() (accepted, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins, s.failed
}

// change runs f while nothing is served.
func (s *Sim) change(f func(m *simulator.Registry)) {
	s.serving.Lock()
	defer s.serving.Unlock()
	f(s.model.Map())
}

// Add makes a virtual machine.
func (s *Sim) Add(spec Spec) *Machine {
	s.mu.Lock()
	s.serial++
	n := s.serial
	s.mu.Unlock()
	spec = spec.complete(n)
	one := &Machine{Name: spec.Name, UUID: spec.UUID, Datacenter: spec.Datacenter}
	s.change(func(m *simulator.Registry) {
		vm := spec.machine()
		folder := s.folderOf(m, spec.Datacenter)
		cluster := s.clusterOf(m, spec.Datacenter)
		host := cluster.Host[n%len(cluster.Host)]
		vm.Runtime.Host, vm.ResourcePool = &host, cluster.ResourcePool
		m.NewEntity(vm)
		folder.ChildEntity = append(folder.ChildEntity, vm.Self)
		m.PutEntity(folder, vm)
		one.vm, one.Ref = vm, vm.Self
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines = append(s.machines, one)
	return one
}

func (spec Spec) complete(n int) Spec {
	if spec.Name == "" {
		spec.Name = fmt.Sprintf("vm-%d", n)
	}
	if spec.UUID == "" {
		spec.UUID = fmt.Sprintf("4230%04x-3f21-5a6b-9c0d-%012x", n%0x10000, n)
	}
	if spec.HostName == "" {
		spec.HostName = spec.Name
	}
	if spec.Datacenter == "" {
		spec.Datacenter = "DC0"
	}
	if spec.NICs == nil {
		spec.NICs = []types.GuestNicInfo{{
			Network: "VM Network", DeviceConfigId: 4000, Connected: true, MacAddress: fmt.Sprintf("00:50:56:00:%02x:%02x", n/256%256, n%256),
			IpAddress: []string{fmt.Sprintf("10.%d.%d.%d", n/62500%250, n/250%250, n%250+1), "fe80::250:56ff:fe00:1"},
		}}
	}
	if spec.GuestID == "" {
		spec.GuestID = "ubuntu64Guest"
	}
	if spec.CPUs == 0 {
		spec.CPUs = 2
	}
	if spec.MemoryMB == 0 {
		spec.MemoryMB = 4096
	}
	return spec
}

func (spec Spec) machine() *simulator.VirtualMachine {
	vm := &simulator.VirtualMachine{}
	vm.Name = spec.Name
	vm.Config = &types.VirtualMachineConfigInfo{
		Name: spec.Name, Uuid: spec.UUID, GuestId: spec.GuestID, Template: spec.Template,
		Hardware: types.VirtualHardware{NumCPU: spec.CPUs, MemoryMB: spec.MemoryMB},
	}
	if spec.Metadata != "" {
		vm.Config.ExtraConfig = []types.BaseOptionValue{
			&types.OptionValue{Key: "guestinfo.metadata", Value: spec.Metadata},
			&types.OptionValue{Key: "guestinfo.metadata.encoding", Value: spec.Encoding},
		}
	}
	if spec.Secondary {
		vm.Config.FtInfo = &types.FaultToleranceSecondaryConfigInfo{FaultToleranceConfigInfo: types.FaultToleranceConfigInfo{Role: 2}}
	}
	vm.Summary.Config = types.VirtualMachineConfigSummary{
		Name: spec.Name, Uuid: spec.UUID, GuestId: spec.GuestID, NumCpu: spec.CPUs, MemorySizeMB: spec.MemoryMB, Template: spec.Template,
		InstanceUuid: spec.InstanceUUID,
	}
	vm.Runtime.ConnectionState = types.VirtualMachineConnectionStateConnected
	vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOn
	vm.Guest = &types.GuestInfo{}
	if !spec.NoTools {
		vm.Guest.HostName, vm.Guest.Net = spec.HostName, spec.NICs
		for _, nic := range spec.NICs {
			if len(nic.IpAddress) > 0 && vm.Guest.IpAddress == "" {
				vm.Guest.IpAddress = nic.IpAddress[0]
			}
		}
	}
	if spec.Off {
		vm.Runtime.PowerState, vm.Guest = types.VirtualMachinePowerStatePoweredOff, &types.GuestInfo{}
	}
	return vm
}

func (s *Sim) datacenter(m *simulator.Registry, name string) *simulator.Datacenter {
	for _, e := range m.All("Datacenter") {
		if d, ok := e.(*simulator.Datacenter); ok && d.Name == name {
			return d
		}
	}
	panic("there is no datacenter " + name)
}

// folderOf is the folder with the virtual machines of a datacenter.
func (s *Sim) folderOf(m *simulator.Registry, datacenter string) *simulator.Folder {
	f, _ := m.Get(s.datacenter(m, datacenter).VmFolder).(*simulator.Folder)
	return f
}

func (s *Sim) clusterOf(m *simulator.Registry, datacenter string) *simulator.ClusterComputeResource {
	for _, e := range m.All("ClusterComputeResource") {
		if strings.HasPrefix(e.Entity().Name, datacenter+"_") {
			c, _ := e.(*simulator.ClusterComputeResource)
			return c
		}
	}
	panic("there is no cluster in " + datacenter)
}

// Instance returns the virtual machine with a name, a provider ID or a UUID.
func (s *Sim) Instance(name string) *Machine {
	one, err := s.findByName(name)
	if err != nil {
		panic(err.Error())
	}
	return one
}

// Update changes properties of a virtual machine, which whoever waits for changes is told of.
func (s *Sim) Update(one *Machine, changes ...types.PropertyChange) {
	s.change(func(*simulator.Registry) { s.model.Service.Context.Update(one.vm, changes) })
}

// Edit changes a virtual machine at will, and tells whoever follows its changes.
func (s *Sim) Edit(one *Machine, f func(*mo.VirtualMachine)) {
	s.change(func(*simulator.Registry) {
		f(&one.vm.VirtualMachine)
		s.announce(one.vm)
	})
}

// announce tells whoever follows changes of a virtual machine what it is like: govmomi's simulator tells what was changed by it alone.
func (s *Sim) announce(vm *simulator.VirtualMachine) {
	guest := vm.Guest
	if guest == nil {
		guest = &types.GuestInfo{}
	}
	told := []types.PropertyChange{
		{Name: "name", Val: vm.Name},
		{Name: "guest.hostName", Val: guest.HostName},
		{Name: "guest.ipAddress", Val: guest.IpAddress},
		{Name: "guest.net", Val: slices.Clone(guest.Net)},
		{Name: "runtime.powerState", Val: vm.Runtime.PowerState},
		{Name: "runtime.connectionState", Val: vm.Runtime.ConnectionState},
		{Name: "summary.config.numCpu", Val: vm.Summary.Config.NumCpu},
		{Name: "summary.config.uuid", Val: vm.Summary.Config.Uuid},
		{Name: "resourcePool", Val: *vm.ResourcePool},
		{Name: "runtime.host", Val: *vm.Runtime.Host},
	}
	if vm.Parent != nil {
		told = append(told, types.PropertyChange{Name: "parent", Val: *vm.Parent})
	}
	if vm.Config != nil {
		told = append(told, types.PropertyChange{Name: "config.uuid", Val: vm.Config.Uuid})
	}
	s.model.Service.Context.Update(vm, told)
}

// PowerOff stops a virtual machine. vCenter then knows nothing of its guest any more.
func (s *Sim) PowerOff(one *Machine) { s.setPower(one, types.VirtualMachinePowerStatePoweredOff) }

// Suspend suspends a virtual machine.
func (s *Sim) Suspend(one *Machine) { s.setPower(one, types.VirtualMachinePowerStateSuspended) }

func (s *Sim) setPower(one *Machine, state types.VirtualMachinePowerState) {
	s.Edit(one, func(vm *mo.VirtualMachine) { vm.Runtime.PowerState, vm.Guest = state, &types.GuestInfo{} })
}

// Destroy deletes a virtual machine.
func (s *Sim) Destroy(one *Machine) {
	s.change(func(m *simulator.Registry) {
		s.detach(m, one.vm)
		m.Remove(s.model.Service.Context, one.Ref)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines = slices.DeleteFunc(s.machines, func(other *Machine) bool { return other == one })
}

func (s *Sim) detach(m *simulator.Registry, vm *simulator.VirtualMachine) {
	if vm.Parent == nil { // it is in a vApp
		if app, ok := m.Get(*vm.ResourcePool).(*simulator.VirtualApp); ok {
			app.Vm = nil
		}
		return
	}
	if f, ok := m.Get(*vm.Parent).(*simulator.Folder); ok {
		f.ChildEntity = slices.DeleteFunc(f.ChildEntity, func(ref types.ManagedObjectReference) bool { return ref == vm.Self })
	}
}

// Lose makes a virtual machine inaccessible, as its datastore or its host being down does.
func (s *Sim) Lose(one *Machine) {
	s.Edit(one, func(vm *mo.VirtualMachine) {
		vm.Runtime.ConnectionState = types.VirtualMachineConnectionStateInaccessible
		vm.Config.Uuid, vm.Summary.Config.Uuid, vm.Guest = "", "", &types.GuestInfo{}
	})
}

// HideAll takes from the account the right to read virtual machines and the folders that they are in: vCenter leaves them out of every
// answer.
func (s *Sim) HideAll() {
	s.mu.Lock()
	machines := slices.Clone(s.machines)
	s.mu.Unlock()
	for _, one := range machines {
		s.Hide(one)
	}
}

// Hide does so for one virtual machine and its folder.
func (s *Sim) Hide(one *Machine) {
	s.change(func(m *simulator.Registry) {
		s.detach(m, one.vm)
		m.Remove(s.model.Service.Context, one.Ref)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hidden[one.Ref] = one.vm
		if one.vm.Parent != nil {
			s.unreadable[*one.vm.Parent] = true
		} else {
			s.unreadable[*one.vm.ResourcePool] = true
		}
	})
}

// IntoVApp puts a virtual machine into a vApp: its folder is none then, and the vApp stands where its resource pool did.
func (s *Sim) IntoVApp(one *Machine) {
	s.change(func(m *simulator.Registry) {
		s.detach(m, one.vm)
		app := &simulator.VirtualApp{}
		app.Name = "app of " + one.Name
		pool, _ := m.Get(*one.vm.ResourcePool).(*simulator.ResourcePool)
		m.PutEntity(pool, m.NewEntity(app))
		self := app.Self
		app.Vm, pool.ResourcePool.ResourcePool = []types.ManagedObjectReference{one.Ref}, append(pool.ResourcePool.ResourcePool, self)
		one.vm.Parent, one.vm.ParentVApp, one.vm.ResourcePool = nil, &self, &self
	})
}

// Move puts a virtual machine into another datacenter.
func (s *Sim) Move(one *Machine, datacenter string) {
	s.change(func(m *simulator.Registry) {
		s.detach(m, one.vm)
		folder := s.folderOf(m, datacenter)
		folder.ChildEntity = append(folder.ChildEntity, one.Ref)
		parent := folder.Self
		one.vm.Parent = &parent
		s.announce(one.vm)
	})
}

// RenameDatacenter gives a datacenter another name.
func (s *Sim) RenameDatacenter(from, to string) {
	s.change(func(m *simulator.Registry) {
		s.model.Service.Context.Update(s.datacenter(m, from), []types.PropertyChange{{Name: "name", Val: to}})
	})
}

// LoseVersion makes the next question about changes fail, as vCenter does that does not know any more what was told.
func (s *Sim) LoseVersion() { s.mu.Do(func() { s.forgetful = true }) }

// EndSessions ends all sessions.
func (s *Sim) EndSessions() {
	s.change(func(m *simulator.Registry) {
		manager := m.SessionManager()
		ctx := *s.model.Service.Context
		ctx.Session = &simulator.Session{Registry: simulator.NewRegistry(), Map: m}
		shown, _ := ctx.Session.Get(m.SessionManager().Self).(*simulator.SessionManager)
		for _, open := range shown.SessionList {
			manager.TerminateSession(&ctx, &types.TerminateSession{SessionId: []string{open.Key}})
		}
	})
}

// Datacenter returns the reference of a datacenter.
func (s *Sim) Datacenter(name string) (ref types.ManagedObjectReference) {
	s.change(func(m *simulator.Registry) { ref = s.datacenter(m, name).Self })
	return ref
}

// Replace puts another vCenter in the place of this one, with the same inventory; sessions end.
func (s *Sim) Replace(instanceUUID string) {
	s.change(func(m *simulator.Registry) { instance(m).Content.About.InstanceUuid = instanceUUID })
	s.EndSessions()
}

// CloneTicket returns a ticket for a session of the user, as a service that shares its session hands out.
func (s *Sim) CloneTicket() (ticket string) {
	s.change(func(m *simulator.Registry) {
		ctx := *s.model.Service.Context
		ctx.Session = &simulator.Session{UserSession: types.UserSession{UserName: User}, Registry: simulator.NewRegistry(), Map: m}
		body, _ := m.SessionManager().AcquireCloneTicket(&ctx, nil).(*methods.AcquireCloneTicketBody)
		ticket = body.Res.Returnval
	})
	return ticket
}
