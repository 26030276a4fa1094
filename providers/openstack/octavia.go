package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
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

// asOfOwnChange replaces updated_at in parts that we have changed since they were read.
const asOfOwnChange = "ours"

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
	query := listQuery()
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
	return requestObject(ctx, a, loadBalancing, "creating load balancer "+r.Name, http.MethodPost, "lbaas/loadbalancers",
		map[string]any{"loadbalancer": r}, "loadbalancer", func(b *loadBalancer) bool { return b.ID != "" }, http.StatusCreated, http.StatusAccepted)
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
	port           string
	forReplacement bool
}

// stepCall is the method and path of a step, and the key of its body. {} is replaced by the step's object.
type stepCall struct{ method, path, key string }

func stepCalls() map[stepKind]stepCall {
	return map[stepKind]stepCall{
		deletePool:         {http.MethodDelete, "pools/{}", ""},
		deleteListener:     {http.MethodDelete, "listeners/{}", ""},
		createListener:     {http.MethodPost, "listeners", "listener"},
		updateListener:     {http.MethodPut, "listeners/{}", "listener"},
		createPool:         {http.MethodPost, "pools", "pool"},
		updatePool:         {http.MethodPut, "pools/{}", "pool"},
		setMembers:         {http.MethodPut, "pools/{}/members", ""},
		addMember:          {http.MethodPost, "pools/{}/members", "member"},
		removeMember:       {http.MethodDelete, "pools/{}/members/", ""},
		createMonitor:      {http.MethodPost, "healthmonitors", "healthmonitor"},
		updateMonitor:      {http.MethodPut, "healthmonitors/{}", "healthmonitor"},
		deleteMonitor:      {http.MethodDelete, "healthmonitors/{}", ""},
		updateLoadBalancer: {http.MethodPut, "loadbalancers/{}", "loadbalancer"},
	}
}

// do makes the call of a step and returns the ID of a created object. Deleting a missing object succeeds.
func (a *api) do(ctx context.Context, st step) (made string, err error) {
	c := stepCalls()[st.kind]
	resource := "lbaas/" + strings.Replace(c.path, "{}", st.id, 1) + st.member.ID
	doing := fmt.Sprintf("%s %s", st.kind, st.id)
	switch {
	case c.method == http.MethodDelete:
		_, err := request[struct{}](ctx, a, loadBalancing, doing, c.method, resource, nil, "", http.StatusNoContent, http.StatusAccepted)
		if errors.Is(err, cloudapi.ErrNotFound) {
			return "", nil
		}
		return "", err
	case st.kind == setMembers: // the response is empty
		all := map[string]any{"members": append([]memberRequest{}, st.members...)}
		_, err := request[struct{}](ctx, a, loadBalancing, doing, c.method, resource, all, "", http.StatusAccepted, http.StatusNoContent)
		return "", err
	}
	after, err := requestObject(
		ctx, a, loadBalancing, doing, c.method, resource, map[string]any{c.key: st.body}, c.key,
		func(r *reference) bool { return r.ID != "" && (c.method == http.MethodPost || r.ID == st.id) },
		http.StatusOK, http.StatusCreated, http.StatusAccepted,
	)
	if err != nil {
		return "", err
	}
	return after.ID, nil
}

func (a *api) deleteLoadBalancer(ctx context.Context, id string, cascade bool) error {
	resource := "lbaas/loadbalancers/" + id
	if cascade {
		resource += "?cascade=true"
	}
	_, err := request[struct{}](ctx, a, loadBalancing, "deleting load balancer "+id, http.MethodDelete, resource, nil, "", http.StatusNoContent, http.StatusAccepted)
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

// isBeingDeleted reports whether a load balancer is being deleted.
func (b *loadBalancer) isBeingDeleted() bool {
	return b.Status == statusDeleted || b.Status == statusPendingDelete
}
