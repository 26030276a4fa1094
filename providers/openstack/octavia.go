package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

const (
	statusActive        = "ACTIVE"
	statusError         = "ERROR"
	statusDeleted       = "DELETED"
	statusPendingCreate = "PENDING_CREATE"
	statusPendingDelete = "PENDING_DELETE"
	statusPendingUpdate = "PENDING_UPDATE"
)

// Octavia's objects, with the fields that are used; see https://docs.openstack.org/api-ref/load-balancer/v2.
type (
	reference struct {
		ID string `json:"id"`
	}

	loadBalancer struct {
		ID             string          `json:"id"`
		Name           string          `json:"name"`
		Description    string          `json:"description"`
		Status         string          `json:"provisioning_status"`
		VIPAddress     string          `json:"vip_address"`
		VIPPortID      string          `json:"vip_port_id"`
		VIPSubnetID    string          `json:"vip_subnet_id"`
		VIPNetworkID   string          `json:"vip_network_id"`
		FlavorID       string          `json:"flavor_id"`
		Zone           string          `json:"availability_zone"`
		Provider       string          `json:"provider"`
		Tags           []string        `json:"tags"`
		UpdatedAt      string          `json:"updated_at"`
		AdditionalVIPs []additionalVIP `json:"additional_vips"`
	}

	additionalVIP struct {
		SubnetID string `json:"subnet_id"`
		Address  string `json:"ip_address,omitempty"`
	}

	listener struct {
		ID              string            `json:"id"`
		Name            string            `json:"name"`
		Protocol        string            `json:"protocol"`
		Port            int               `json:"protocol_port"`
		ConnectionLimit int               `json:"connection_limit"`
		DefaultPoolID   string            `json:"default_pool_id"`
		TLSContainerRef string            `json:"default_tls_container_ref"`
		InsertHeaders   map[string]string `json:"insert_headers"`
		AllowedCIDRs    []string          `json:"allowed_cidrs"`
		ClientData      int               `json:"timeout_client_data"`
		MemberConnect   int               `json:"timeout_member_connect"`
		MemberData      int               `json:"timeout_member_data"`
		TCPInspect      int               `json:"timeout_tcp_inspect"`
		Tags            []string          `json:"tags"`
		Owners          []reference       `json:"loadbalancers"`
	}

	persistence struct {
		Type string `json:"type"`
	}

	pool struct {
		ID          string       `json:"id"`
		Name        string       `json:"name"`
		Protocol    string       `json:"protocol"`
		Method      string       `json:"lb_algorithm"`
		Persistence *persistence `json:"session_persistence"`
		Listeners   []reference  `json:"listeners"`
		Tags        []string     `json:"tags"`
		MonitorID   string       `json:"healthmonitor_id"`
		// Owners are its load balancers.
		Owners    []reference `json:"loadbalancers"`
		MemberIDs idSet       `json:"members"`

		members memberSet
		monitor *monitor
	}

	member struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		Address     string `json:"address"`
		Port        int    `json:"protocol_port"`
		SubnetID    string `json:"subnet_id"`
		MonitorPort int    `json:"monitor_port"`
	}

	monitor struct {
		ID             string `json:"id"`
		Name           string `json:"name"`
		Type           string `json:"type"`
		Delay          int    `json:"delay"`
		Timeout        int    `json:"timeout"`
		MaxRetries     int    `json:"max_retries"`
		MaxRetriesDown int    `json:"max_retries_down"`
		URLPath        string `json:"url_path"`
		Codes          string `json:"expected_codes"`
	}
)

// Requests omit nil pointers.
type (
	loadBalancerRequest struct {
		Name           string            `json:"name"`
		Description    string            `json:"description,omitempty"`
		Provider       string            `json:"provider,omitempty"`
		Tags           []string          `json:"tags,omitempty"`
		VIPSubnetID    string            `json:"vip_subnet_id,omitempty"`
		VIPNetworkID   string            `json:"vip_network_id,omitempty"`
		VIPPortID      string            `json:"vip_port_id,omitempty"`
		VIPAddress     string            `json:"vip_address,omitempty"`
		FlavorID       string            `json:"flavor_id,omitempty"`
		Zone           string            `json:"availability_zone,omitempty"`
		AdditionalVIPs []additionalVIP   `json:"additional_vips,omitempty"`
		Listeners      []listenerRequest `json:"listeners,omitempty"`
	}

	loadBalancerUpdate struct {
		Name *string   `json:"name,omitempty"`
		Tags *[]string `json:"tags,omitempty"`
	}

	listenerRequest struct {
		LoadBalancerID  string            `json:"loadbalancer_id,omitempty"`
		Name            string            `json:"name"`
		Protocol        string            `json:"protocol"`
		Port            int               `json:"protocol_port"`
		ConnectionLimit int               `json:"connection_limit"`
		Tags            []string          `json:"tags,omitempty"`
		ClientData      *int              `json:"timeout_client_data,omitempty"`
		MemberConnect   *int              `json:"timeout_member_connect,omitempty"`
		MemberData      *int              `json:"timeout_member_data,omitempty"`
		TCPInspect      *int              `json:"timeout_tcp_inspect,omitempty"`
		InsertHeaders   map[string]string `json:"insert_headers,omitempty"`
		AllowedCIDRs    []string          `json:"allowed_cidrs,omitempty"`
		TLSContainerRef string            `json:"default_tls_container_ref,omitempty"`
		Pool            *poolRequest      `json:"default_pool,omitempty"`
	}

	listenerUpdate struct {
		Name            *string            `json:"name,omitempty"`
		ConnectionLimit *int               `json:"connection_limit,omitempty"`
		Tags            *[]string          `json:"tags,omitempty"`
		ClientData      *int               `json:"timeout_client_data,omitempty"`
		MemberConnect   *int               `json:"timeout_member_connect,omitempty"`
		MemberData      *int               `json:"timeout_member_data,omitempty"`
		TCPInspect      *int               `json:"timeout_tcp_inspect,omitempty"`
		InsertHeaders   *map[string]string `json:"insert_headers,omitempty"`
		AllowedCIDRs    *[]string          `json:"allowed_cidrs,omitempty"`
		TLSContainerRef *string            `json:"default_tls_container_ref,omitempty"`
		DefaultPoolID   *string            `json:"default_pool_id,omitempty"`
	}

	poolRequest struct {
		// Either ListenerID or LoadBalancerID is set; the listener must have no pool yet.
		ListenerID     string          `json:"listener_id,omitempty"`
		LoadBalancerID string          `json:"loadbalancer_id,omitempty"`
		Name           string          `json:"name"`
		Protocol       string          `json:"protocol"`
		Method         string          `json:"lb_algorithm"`
		Persistence    *persistence    `json:"session_persistence,omitempty"`
		Tags           []string        `json:"tags,omitempty"`
		Members        []memberRequest `json:"members,omitempty"`
		Monitor        *monitorRequest `json:"healthmonitor,omitempty"`
	}

	memberRequest struct {
		Name        string `json:"name,omitempty"`
		Address     string `json:"address"`
		Port        int    `json:"protocol_port"`
		SubnetID    string `json:"subnet_id,omitempty"`
		MonitorPort int    `json:"monitor_port,omitempty"`
	}

	monitorRequest struct {
		PoolID         string `json:"pool_id,omitempty"`
		Name           string `json:"name"`
		Type           string `json:"type,omitempty"`
		Delay          int    `json:"delay"`
		Timeout        int    `json:"timeout"`
		MaxRetries     int    `json:"max_retries"`
		MaxRetriesDown int    `json:"max_retries_down"`
		URLPath        string `json:"url_path,omitempty"`
		Method         string `json:"http_method,omitempty"`
		Codes          string `json:"expected_codes,omitempty"`
	}
)

// details holds the parts of one load balancer.
type details struct {
	loadBalancerID string
	listeners      []listener
	pools          []pool
	// listed is set if they come from listings and the status tree. These only prove that nothing must be changed.
	listed bool
	// asOf is the load balancer's updated_at when the parts were read, or ours; "" if unknown.
	asOf string
}

// ours replaces updated_at in parts that we have changed since they were read.
const ours = "ours"

// poolOf returns a listener's default pool, or nil. A pool's own list of listeners also contains those that reach it by a policy.
func (d *details) poolOf(l listener) *pool {
	for i := range d.pools {
		if p := &d.pools[i]; p.ID == l.DefaultPoolID {
			return p
		}
	}
	return nil
}

func (d *details) clone() *details {
	after := *d
	after.listeners, after.pools = slices.Clone(d.listeners), slices.Clone(d.pools)
	return &after
}

func (a *api) listLoadBalancers(ctx context.Context) ([]*loadBalancer, int, error) {
	if _, err := a.connect(ctx); err != nil {
		return nil, 1, err
	}
	query := pageQuery()
	a.mu.Lock()
	if a.project != "" {
		query.Set("project_id", a.project) // an administrator sees all projects, where names may repeat
	}
	a.mu.Unlock()
	return listAll[*loadBalancer](ctx, a, loadBalancing, "lbaas/loadbalancers", "loadbalancers", query)
}

func (a *api) getLoadBalancer(ctx context.Context, id string) (*loadBalancer, error) {
	return get(ctx, a, loadBalancing, "reading load balancer "+id, "lbaas/loadbalancers/"+id, "loadbalancer", func(b *loadBalancer) bool { return b.ID == id })
}

func (a *api) createLoadBalancer(ctx context.Context, r loadBalancerRequest) (*loadBalancer, error) {
	return withID(request[loadBalancer](ctx, a, loadBalancing, "creating load balancer "+r.Name, http.MethodPost, "lbaas/loadbalancers",
		underKey("loadbalancer", r), "loadbalancer", http.StatusCreated, http.StatusAccepted))
}

// withID rejects a response to a creation that lacks an ID.
func withID(b *loadBalancer, err error) (*loadBalancer, error) {
	if err == nil && b.ID == "" {
		return nil, &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "creating a load balancer", Message: errWrongAnswer.Error()}
	}
	return b, err
}

func underKey(key string, v any) map[string]any { return map[string]any{key: v} }

func newMonitorInventory(a *api) *inventory.Inventory[string, *monitor] {
	return inventory.New(inventory.Source[string, *monitor]{
		Kind: "health monitor", ID: func(m *monitor) string { return m.ID },
		List: func(ctx context.Context) ([]*monitor, int, error) {
			return listAll[*monitor](ctx, a, loadBalancing, "lbaas/healthmonitors", "healthmonitors", pageQuery())
		},
		Get: func(ctx context.Context, id string) (*monitor, error) {
			return get(ctx, a, loadBalancing, "reading health monitor "+id, "lbaas/healthmonitors/"+id, "healthmonitor", func(m *monitor) bool { return m.ID == id })
		},
	})
}

const (
	// firstMonitorsMaxAge lets all load balancers share one listing of monitors after a start.
	firstMonitorsMaxAge = time.Minute
	// monitorsMaxAge is for later reads, which follow a change. It is shorter than any change takes.
	monitorsMaxAge = 500 * time.Millisecond
)

// readParts reads the parts of a load balancer. The first read may use listings shared by all load balancers.
func (l *loadBalancers) readParts(ctx context.Context, id string) (*details, error) {
	d := &details{loadBalancerID: id}
	age := monitorsMaxAge
	if _, before := l.looked.LoadOrStore(id, struct{}{}); !before {
		age = firstMonitorsMaxAge
		if listed, err := l.partsAtStart(ctx, id); listed != nil || err != nil {
			return listed, err
		}
	}
	var err error
	if d.listeners, d.pools, _, err = l.partPages.list(ctx, "loadbalancer_id", id); err != nil {
		return nil, err
	}
	reads := l.monitorReads(ctx, d, age)
	for i := range d.pools {
		p := &d.pools[i]
		reads = append(reads, func() (err error) { p.members, err = l.readMembers(ctx, p.ID); return err })
	}
	d.forgetIDs()
	return d, waiting.Together(reads...)
}

func (l *loadBalancers) monitorReads(ctx context.Context, d *details, age time.Duration) (reads []func() error) {
	for i := range d.pools {
		if p := &d.pools[i]; p.MonitorID != "" {
			reads = append(reads, func() (err error) {
				p.monitor, err = l.monitors.Get(ctx, p.MonitorID, inventory.Query{MaxAge: age, Expected: len(d.pools)})
				return err
			})
		}
	}
	return reads
}

func membersPath(poolID string) string { return "lbaas/pools/" + poolID + "/members" }

func (l *loadBalancers) readMembers(ctx context.Context, poolID string) (memberSet, error) {
	members, _, err := listAll[member](ctx, l.api, loadBalancing, membersPath(poolID), "members", pageQuery())
	return memberSetOf(members, l.memberLists), err
}

// stepKind is a change of one object of a load balancer. Octavia makes one change to a load balancer at a time.
type stepKind string

const (
	deletePool         stepKind = "delete pool"
	deleteListener     stepKind = "delete listener"
	createListener     stepKind = "create listener"
	updateListener     stepKind = "update listener"
	createPool         stepKind = "create pool"
	updatePool         stepKind = "update pool"
	setMembers         stepKind = "set members"
	addMember          stepKind = "add member"
	removeMember       stepKind = "remove member"
	createMonitor      stepKind = "create health monitor"
	updateMonitor      stepKind = "update health monitor"
	deleteMonitor      stepKind = "delete health monitor"
	updateLoadBalancer stepKind = "update load balancer"
)

// step is one API call. Only the fields that its kind needs are set.
type step struct {
	kind stepKind
	// id names the object to change, or the parent of a new one.
	id string
	// member is the member to remove. Its ID is empty if the pool is too large to keep IDs.
	member member
	// members are all members of the pool after the step.
	members []memberRequest
	body    any
	// reason names the difference.
	reason string
	// port is the Service port concerned. beside is set for steps that prepare a replacement pool.
	port   string
	beside bool
}

// call returns the method and path of a step, and the key of its body. {} is replaced by the step's object.
func (k stepKind) call() (method, path, key string) {
	switch k {
	case deletePool:
		return http.MethodDelete, "pools/{}", ""
	case deleteListener:
		return http.MethodDelete, "listeners/{}", ""
	case createListener:
		return http.MethodPost, "listeners", "listener"
	case updateListener:
		return http.MethodPut, "listeners/{}", "listener"
	case createPool:
		return http.MethodPost, "pools", "pool"
	case updatePool:
		return http.MethodPut, "pools/{}", "pool"
	case setMembers:
		return http.MethodPut, "pools/{}/members", ""
	case addMember:
		return http.MethodPost, "pools/{}/members", "member"
	case removeMember:
		return http.MethodDelete, "pools/{}/members/", ""
	case createMonitor:
		return http.MethodPost, "healthmonitors", "healthmonitor"
	case updateMonitor:
		return http.MethodPut, "healthmonitors/{}", "healthmonitor"
	case deleteMonitor:
		return http.MethodDelete, "healthmonitors/{}", ""
	case updateLoadBalancer:
		return http.MethodPut, "loadbalancers/{}", "loadbalancer"
	}
	return "", "", ""
}

// do makes the call of a step and returns the ID of a created object. Deleting a missing object succeeds.
func (a *api) do(ctx context.Context, st step) (made string, err error) {
	method, at, key := st.kind.call()
	at = "lbaas/" + strings.Replace(at, "{}", st.id, 1) + st.member.ID
	doing := fmt.Sprintf("%s %s", st.kind, st.id)
	switch {
	case method == http.MethodDelete:
		_, err := request[struct{}](ctx, a, loadBalancing, doing, method, at, nil, "", http.StatusNoContent, http.StatusAccepted)
		if errors.Is(err, cloudapi.ErrNotFound) {
			return "", nil
		}
		return "", err
	case st.kind == setMembers: // the response is empty
		all := underKey("members", append([]memberRequest{}, st.members...))
		_, err := request[struct{}](ctx, a, loadBalancing, doing, method, at, all, "", http.StatusAccepted, http.StatusNoContent)
		return "", err
	}
	after, err := request[reference](
		ctx, a, loadBalancing, doing, method, at, underKey(key, st.body), key, http.StatusOK, http.StatusCreated, http.StatusAccepted,
	)
	if err == nil && (after.ID == "" || (method == http.MethodPut && after.ID != st.id)) {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: doing, Message: errWrongAnswer.Error()}
	}
	if err != nil {
		return "", err
	}
	return after.ID, nil
}

func (a *api) deleteLoadBalancer(ctx context.Context, id string, cascade bool) error {
	at := "lbaas/loadbalancers/" + id
	if cascade {
		at += "?cascade=true"
	}
	_, err := request[struct{}](ctx, a, loadBalancing, "deleting load balancer "+id, http.MethodDelete, at, nil, "", http.StatusNoContent, http.StatusAccepted)
	return err
}

// failOver makes Octavia rebuild a load balancer's machines; address and settings stay.
func (a *api) failOver(ctx context.Context, id string) error {
	_, err := request[struct{}](
		ctx, a, loadBalancing, "failing load balancer "+id+" over", http.MethodPut, "lbaas/loadbalancers/"+id+"/failover", nil, "",
		http.StatusAccepted, http.StatusNoContent, http.StatusOK,
	)
	return err
}

// isPending reports whether Octavia is working on a load balancer.
func (b *loadBalancer) isPending() bool { return strings.HasPrefix(b.Status, "PENDING") }

// isLeaving reports whether a load balancer is being deleted.
func (b *loadBalancer) isLeaving() bool {
	return b.Status == statusDeleted || b.Status == statusPendingDelete
}

// providerOr returns the load balancer's Octavia provider, or standard if there is no load balancer.
func (b *loadBalancer) providerOr(standard string) string {
	if b == nil {
		return standard
	}
	return cmp.Or(b.Provider, standard)
}
