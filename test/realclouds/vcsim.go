package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"time"

	"github.com/vmware/govmomi"
	_ "github.com/vmware/govmomi/lookup/simulator" // registers the endpoint
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/sts/simulator" // registers the endpoint
	"github.com/vmware/govmomi/vapi/rest"
	_ "github.com/vmware/govmomi/vapi/simulator" // registers the endpoint
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const (
	govmomiModule   = "github.com/vmware/govmomi"
	vcsimUser       = "ccm@vsphere.local"
	vcsimPassword   = "example"
	vcsimRegion     = "eu"
	regionCategory  = "k8s-region"
	zoneCategory    = "k8s-zone"
	virtualMachines = 5
)

// vcsim stands for vCenter: govmomi's simulator as it is, in this process, changed through vCenter's own API alone.
type vcsim struct {
	model  *simulator.Model
	mux    http.Handler
	certs  []tls.Certificate
	url    *url.URL
	server *http.Server
	// client is an administrator's, whose calls nobody counts as the program's.
	client *govmomi.Client
	// names are those of the virtual machines that are nodes from the beginning, zones those of the hosts.
	names []string
	zones map[types.ManagedObjectReference]string
}

func newVcsim() services { return &vcsim{zones: map[types.ManagedObjectReference]string{}} }

// start implements services.
func (v *vcsim) start(ctx context.Context, r *run) (*harness.Outside, error) {
	v.model = simulator.VPX()
	v.model.Cluster, v.model.ClusterHost, v.model.Host, v.model.Machine = 1, 2, 0, virtualMachines
	if err := v.model.Create(); err != nil {
		return nil, fmt.Errorf("making vcsim's inventory: %w", err)
	}
	service := v.model.Service
	service.RegisterEndpoints, service.TLS = true, &tls.Config{MinVersion: tls.VersionTLS12}
	service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(vcsimUser, vcsimPassword)}
	listening := service.NewServer()
	v.mux, v.certs, v.url = service.ServeMux, listening.TLS.Certificates, listening.URL
	thumbprint := soap.ThumbprintSHA256(listening.Certificate())
	listening.Close() // it could not be opened again after an outage
	if err := v.open(ctx); err != nil {
		return nil, err
	}
	r.record.Title, r.record.Services = "vcsim, which simulates vCenter", []string{"vcsim of govmomi " + moduleVersion(govmomiModule)}
	var err error
	if v.client, err = v.login(ctx); err != nil {
		return nil, err
	}
	if err := v.seed(ctx); err != nil {
		return nil, err
	}
	if r.record.Lacks, err = v.lacks(ctx); err != nil {
		return nil, err
	}
	return &harness.Outside{CloudConfig: fmt.Sprintf("global:\n  server: %q\n  port: %s\n  user: %q\n  password: %q\n  thumbprint: %q\n"+
		"labels: {region: %s, zone: %s}\n", v.url.Hostname(), v.url.Port(), vcsimUser, vcsimPassword, thumbprint, regionCategory, zoneCategory)}, nil
}

// moduleVersion is that of a module that this program was built with.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "of an unknown version"
}

// open serves vcsim at its address.
func (v *vcsim) open(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", v.url.Host)
	if err != nil {
		return fmt.Errorf("serving vcsim: %w", err)
	}
	v.server = &http.Server{
		Handler: v.mux, TLSConfig: &tls.Config{Certificates: v.certs, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: time.Minute,
	}
	go func(s *http.Server) { _ = s.ServeTLS(l, "", "") }(v.server) // it ends as the server is closed
	return nil
}

// stop implements services.
func (v *vcsim) stop() {
	if v.server != nil {
		_ = v.server.Close()
	}
	if v.model != nil {
		v.model.Remove()
	}
}

// login opens an administrator's session.
func (v *vcsim) login(ctx context.Context) (*govmomi.Client, error) {
	u := *v.url
	u.User = url.UserPassword(vcsimUser, vcsimPassword)
	client, err := govmomi.NewClient(ctx, &u, true)
	if err != nil {
		return nil, fmt.Errorf("logging in to vcsim: %w", err)
	}
	return client, nil
}

// each reads properties of all objects of a kind.
func (v *vcsim) each(ctx context.Context, kind string, properties []string, into any) error {
	list, err := view.NewManager(v.client.Client).CreateContainerView(ctx, v.client.ServiceContent.RootFolder, []string{kind}, true)
	if err != nil {
		return fmt.Errorf("listing objects of kind %s: %w", kind, err)
	}
	defer func() { _ = list.Destroy(ctx) }() // it ends with the session
	return list.Retrieve(ctx, []string{kind}, properties, into)
}

// virtualMachine is a virtual machine as vCenter shows it.
type virtualMachine struct {
	ref                 types.ManagedObjectReference
	uuid, address, host string
}

// machines are the virtual machines by name.
func (v *vcsim) machines(ctx context.Context) (map[string]virtualMachine, error) {
	var list []mo.VirtualMachine
	if err := v.each(ctx, "VirtualMachine", []string{"name", "config.uuid", "guest", "runtime.host"}, &list); err != nil {
		return nil, err
	}
	all := map[string]virtualMachine{}
	for _, one := range list {
		m := virtualMachine{ref: one.Self}
		if one.Config != nil {
			m.uuid = one.Config.Uuid
		}
		if one.Guest != nil {
			m.address = one.Guest.IpAddress
		}
		if one.Runtime.Host != nil {
			m.host = one.Runtime.Host.Value
		}
		all[one.Name] = m
	}
	return all, nil
}

// vm is a virtual machine that can be told what to do.
func (v *vcsim) vm(ctx context.Context, name string) (*object.VirtualMachine, error) {
	all, err := v.machines(ctx)
	if err != nil {
		return nil, err
	}
	one, ok := all[name]
	if !ok {
		return nil, errors.New("there is no virtual machine " + name)
	}
	return object.NewVirtualMachine(v.client.Client, one.ref), nil
}

// waitForTask waits for a task.
func waitForTask(ctx context.Context, task *object.Task, err error) error {
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

// seed gives the virtual machines the names, host names and addresses of nodes, and tags what they run on.
func (v *vcsim) seed(ctx context.Context) error {
	all, err := v.machines(ctx)
	if err != nil {
		return err
	}
	found := make([]string, 0, len(all))
	for name := range all {
		found = append(found, name)
	}
	slices.Sort(found)
	for i, old := range found {
		name := fmt.Sprintf("node-%d", i)
		vm := object.NewVirtualMachine(v.client.Client, all[old].ref)
		task, err := vm.Rename(ctx, name)
		if err := waitForTask(ctx, task, err); err != nil {
			return fmt.Errorf("naming virtual machine %s: %w", name, err)
		}
		if err := guest(ctx, vm, name, i); err != nil {
			return err
		}
		v.names = append(v.names, name)
	}
	return v.tag(ctx)
}

// guest has the guest of a virtual machine report a host name and an address. vcsim takes both as settings.
func guest(ctx context.Context, vm *object.VirtualMachine, name string, number int) error {
	task, err := vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{
		&types.OptionValue{Key: "SET.guest.hostName", Value: name},
		&types.OptionValue{Key: "SET.guest.ipAddress", Value: fmt.Sprintf("10.20.0.%d", 10+number)},
	}})
	if err := waitForTask(ctx, task, err); err != nil {
		return fmt.Errorf("starting the guest of virtual machine %s: %w", name, err)
	}
	return nil
}

// tag gives the datacenter a region and each host a zone.
func (v *vcsim) tag(ctx context.Context) error {
	client := rest.NewClient(v.client.Client)
	if err := client.Login(ctx, url.UserPassword(vcsimUser, vcsimPassword)); err != nil {
		return fmt.Errorf("logging in to vcsim for tags: %w", err)
	}
	manager := tags.NewManager(client)
	attach := func(category, name string, ref types.ManagedObjectReference) error {
		id, err := manager.CreateTag(ctx, &tags.Tag{Name: name, CategoryID: category})
		if err == nil {
			err = manager.AttachTag(ctx, id, ref)
		}
		if err != nil {
			return fmt.Errorf("attaching tag %s: %w", name, err)
		}
		return nil
	}
	ids := map[string]string{}
	for _, name := range []string{regionCategory, zoneCategory} {
		id, err := manager.CreateCategory(ctx, &tags.Category{Name: name, Cardinality: "SINGLE"})
		if err != nil {
			return fmt.Errorf("making the category %s: %w", name, err)
		}
		ids[name] = id
	}
	var datacenters []mo.Datacenter
	if err := v.each(ctx, "Datacenter", []string{"name"}, &datacenters); err != nil {
		return err
	}
	if err := attach(ids[regionCategory], vcsimRegion, datacenters[0].Self); err != nil {
		return err
	}
	var hosts []mo.HostSystem
	if err := v.each(ctx, "HostSystem", []string{"name"}, &hosts); err != nil {
		return err
	}
	for i, host := range hosts {
		v.zones[host.Self] = fmt.Sprintf("%s-%d", vcsimRegion, i+1)
		if err := attach(ids[zoneCategory], v.zones[host.Self], host.Self); err != nil {
			return err
		}
	}
	return nil
}

// clone makes one more virtual machine.
func (v *vcsim) clone(ctx context.Context, name string, number int) error {
	from, err := v.vm(ctx, v.names[0])
	if err != nil {
		return err
	}
	folders, err := object.NewRootFolder(v.client.Client).Children(ctx)
	if err != nil {
		return fmt.Errorf("looking for the datacenter: %w", err)
	}
	datacenter, ok := folders[0].(*object.Datacenter)
	if !ok {
		return fmt.Errorf("vcsim's root folder has %v instead of a datacenter", folders[0])
	}
	inside, err := datacenter.Folders(ctx)
	if err != nil {
		return fmt.Errorf("looking for the folder of virtual machines: %w", err)
	}
	task, err := from.Clone(ctx, inside.VmFolder, name, types.VirtualMachineCloneSpec{PowerOn: true})
	if err := waitForTask(ctx, task, err); err != nil {
		return fmt.Errorf("cloning a virtual machine: %w", err)
	}
	made, err := v.vm(ctx, name)
	if err != nil {
		return err
	}
	return guest(ctx, made, name, number)
}

// endSessions ends all sessions but the administrator's, as vCenter does when it starts.
func (v *vcsim) endSessions(ctx context.Context) (int, error) {
	var sessions mo.SessionManager
	if err := v.client.RetrieveOne(ctx, *v.client.ServiceContent.SessionManager, []string{"sessionList"}, &sessions); err != nil {
		return 0, fmt.Errorf("listing sessions: %w", err)
	}
	own, err := v.client.SessionManager.UserSession(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the own session: %w", err)
	}
	var keys []string
	for _, s := range sessions.SessionList {
		if own != nil && s.Key != own.Key {
			keys = append(keys, s.Key)
		}
	}
	if len(keys) == 0 {
		return 0, errors.New("the program has no session")
	}
	if err := v.client.SessionManager.TerminateSession(ctx, keys); err != nil {
		return 0, fmt.Errorf("ending sessions: %w", err)
	}
	return len(keys), nil
}

// join implements services.
func (v *vcsim) join(ctx context.Context, r *run) error { return r.join(ctx, v.names) }

// values implements services.
func (*vcsim) values() harness.Values { return harness.Values{} }

// before implements services: there is nothing to compare with.
func (*vcsim) before(context.Context, *run) error { return nil }

// suite implements services: what needs no load balancer.
func (*vcsim) suite() []suiteRun {
	return []suiteRun{{part: "suite", what: "load balancers", why: "they are NSX's, which vcsim does not have", without: []string{
		"create", "traffic", "ports", "node-leaves", "node-joins", "source-ranges", "traffic-policy", "annotation", "delete",
	}}}
}

// listLeft implements services: the program makes nothing in vCenter but sessions, which end with it.
func (v *vcsim) listLeft(ctx context.Context) ([]string, error) {
	var list []mo.ManagedEntity
	if err := v.each(ctx, "ManagedEntity", []string{"name"}, &list); err != nil {
		return nil, err
	}
	var all []string
	for _, one := range list {
		if !slices.Contains([]string{clonedMachine, lastMachine, deletedMachine}, one.Name) { // those come and go by our own hand
			all = append(all, one.Self.Type+" "+one.Name)
		}
	}
	slices.Sort(all)
	return all, nil
}
