package ocisim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
)

// The states of load balancers.
const (
	stateCreating = "CREATING"
	stateActive   = "ACTIVE"
	stateFailed   = "FAILED"
	stateDeleting = "DELETING"
	stateDeleted  = "DELETED"

	// remembered is how long a deleted load balancer is shown.
	remembered = 30 * time.Second
	// tokensLast is how long a retry token stands for what it made.
	tokensLast = 24 * time.Hour
)

type document = map[string]any

// LoadBalancer is a load balancer with all that the API shows of it, what no program knows included.
type LoadBalancer struct {
	ID, Name, State string
	Doc             document

	made, ended time.Time
	version     int
	reserved    *reserved
}

func (lb *LoadBalancer) etag() string { return fmt.Sprintf("%s-%d", lb.ID[len(lb.ID)-6:], lb.version) }

// token is a retry token, with what was asked and answered under it.
type token struct {
	sum  [sha256.Size]byte
	work string
	at   time.Time
}

// balancing holds the simulator's load balancers and their work requests.
type balancing struct {
	balancers []*LoadBalancer
	works     works
	tokens    map[string]token
	serial    int
	workTime  time.Duration
	// failNext is the error of the next work request.
	failNext string
	// refuse is the code and the message that the next creation is refused with.
	refuse [2]string
}

// LoadBalancers returns copies of those that are not deleted.
func (s *Sim) LoadBalancers() []LoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	list := []LoadBalancer{}
	for _, lb := range s.balancers {
		if lb.State != stateDeleted {
			one := *lb
			one.Doc = jsondoc.Clone(lb.Doc)
			list = append(list, one)
		}
	}
	return list
}

// EditLoadBalancer changes one as somebody does by hand.
func (s *Sim) EditLoadBalancer(name string, change func(*LoadBalancer)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	for _, lb := range s.balancers {
		if lb.Name == name && lb.State != stateDeleted {
			change(lb)
			lb.version++
			return nil
		}
	}
	return fmt.Errorf("there is no load balancer %s", name)
}

// RemoveLoadBalancers deletes all load balancers, as somebody does by hand.
func (s *Sim) RemoveLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lb := range s.balancers {
		lb.State, lb.ended = stateDeleted, time.Now()
	}
	s.works = nil
}

// BeginWork makes the cloud work on a load balancer for somebody else.
func (s *Sim) BeginWork(name string, lasts time.Duration) error {
	return s.EditLoadBalancer(name, func(lb *LoadBalancer) {
		w := s.begin("UpdateLoadBalancer", lb, func(*LoadBalancer) {})
		w.due = time.Now().Add(lasts)
	})
}

// FailNextWork makes the next work request fail.
func (s *Sim) FailNextWork(message string) { s.mu.Do(func() { s.failNext = message }) }

// Refuse makes the cloud refuse the next creation of a load balancer.
func (s *Sim) Refuse(code, message string) { s.mu.Do(func() { s.refuse = [2]string{code, message} }) }

// SetWorkTime changes how long work takes from now on.
func (s *Sim) SetWorkTime(d time.Duration) { s.mu.Do(func() { s.workTime = d }) }

// settle ends what is due.
func (s *Sim) settle() {
	s.settleNetwork()
	now := time.Now()
	s.works.end(now)
	for _, lb := range s.balancers {
		if lb.State == stateDeleted && lb.reserved != nil {
			lb.reserved.state, lb.reserved = "AVAILABLE", nil
		}
	}
	s.balancers = slices.DeleteFunc(s.balancers, func(lb *LoadBalancer) bool {
		return lb.State == stateDeleted && now.Sub(lb.ended) > remembered
	})
}

// balancer is the load balancer of an ID; nil where there is none.
func (s *Sim) balancer(id string) *LoadBalancer {
	at := slices.IndexFunc(s.balancers, func(lb *LoadBalancer) bool { return lb.ID == id })
	if at < 0 {
		return nil
	}
	return s.balancers[at]
}

// begin begins work.
func (s *Sim) begin(kind string, lb *LoadBalancer, apply func(*LoadBalancer)) *work {
	s.serial++
	return s.beginWork(&s.works, &work{
		id: fmt.Sprintf("ocid1.loadbalancerworkrequest.oc1.phx.aaaawork%06d", s.serial), kind: kind, target: lb.ID,
		done: func(*work) {
			apply(lb)
			lb.version++
		},
		failed: func(*work) {
			switch lb.State {
			case stateCreating:
				lb.State = stateFailed
			case stateDeleting:
				lb.State = stateActive
			}
		},
	})
}

// shown is a work request as the API shows it.
func (w *work) shown() document {
	d := document{
		"id": w.id, "loadBalancerId": w.target, "type": w.kind, "lifecycleState": w.state, "message": "", "timeAccepted": stamp(w.begun),
		"errorDetails": []any{}, "compartmentId": Compartment,
	}
	switch w.state {
	case stateFailed:
		d["message"], d["timeFinished"] = w.failure, stamp(w.due)
		d["errorDetails"] = []any{document{"errorCode": "BAD_INPUT", "message": w.failure}}
	case workSucceeded:
		d["message"], d["timeFinished"] = "Done.", stamp(w.due)
	}
	return d
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// shown is a load balancer as the API shows it, with what it fills in by itself.
func (lb *LoadBalancer) shown() document {
	d := jsondoc.Clone(lb.Doc)
	d["id"], d["displayName"], d["lifecycleState"], d["timeCreated"] = lb.ID, lb.Name, lb.State, stamp(lb.made)
	for name, l := range part(d, "listeners") {
		one := l.(document) //nolint:forcetypeassert // checked when it was written
		one["name"] = name
		fillTLS(one)
		if one["connectionConfiguration"] == nil {
			one["connectionConfiguration"] = document{"idleTimeout": map[bool]int{true: 300, false: 60}[one["protocol"] == "TCP"]}
		}
	}
	for name, v := range part(d, "ruleSets") {
		fillRuleSet(v.(document), name) //nolint:forcetypeassert // checked when it was written
	}
	for name, b := range part(d, "backendSets") {
		one := b.(document) //nolint:forcetypeassert // checked when it was written
		one["name"] = name
		fillTLS(one)
		checker := one["healthChecker"].(document) //nolint:forcetypeassert // checked when it was written
		if checker["responseBodyRegex"] == nil {
			checker["responseBodyRegex"] = ".*"
		}
		for _, v := range list(one["backends"]) {
			backend := v.(document) //nolint:forcetypeassert // checked when it was written
			backend["name"] = fmt.Sprintf("%v:%v", backend["ipAddress"], backend["port"])
			if backend["weight"] == nil {
				backend["weight"] = 1.0
			}
			for _, flag := range []string{"backup", "drain", "offline"} {
				if backend[flag] == nil {
					backend[flag] = false
				}
			}
		}
	}
	if lb.State != stateCreating && lb.State != stateFailed {
		var n int
		_, _ = fmt.Sscanf(lb.ID[len(lb.ID)-6:], "%d", &n)
		private := d["isPrivate"] == true
		ip := fmt.Sprintf("%s.%d.%d", map[bool]string{true: "10.0", false: "140.238"}[private], 100+n/250, n%250+1)
		shown := document{"ipAddress": ip, "isPublic": !private}
		if lb.reserved != nil {
			shown["ipAddress"], shown["reservedIp"] = lb.reserved.address, document{"id": lb.reserved.id}
		}
		addresses := []any{shown}
		if d["ipMode"] == "IPV6" {
			addresses = append(addresses, document{"ipAddress": fmt.Sprintf("2603:c020:0:5::%x", n), "isPublic": !private})
		}
		d["ipAddresses"] = addresses
	}
	return d
}

func part(d document, name string) document {
	m, _ := d[name].(document)
	return m
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// create makes a load balancer; the answer to a token that was used before is that of then.
func (s *Sim) create(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	key := r.Header.Get("Opc-Retry-Token")
	if before, used := s.tokens[key]; used && key != "" && time.Since(before.at) < tokensLast {
		if before.sum != sum {
			fail(w, http.StatusConflict, "InvalidatedRetryToken", "the retry token was used with another request")
			return
		}
		accept(w, before.work)
		return
	}
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		fail(w, http.StatusBadRequest, "CannotParseRequest", err.Error())
		return
	}
	if no := s.refuse; no[0] != "" {
		s.refuse = [2]string{}
		fail(w, http.StatusBadRequest, no[0], no[1])
		return
	}
	if code, why := s.judgeCreation(d); why != "" {
		fail(w, http.StatusBadRequest, code, why)
		return
	}
	if overLimit(w, countParts(d)) {
		return
	}
	s.serial++
	name, _ := d["displayName"].(string)
	lb := &LoadBalancer{
		ID: fmt.Sprintf("ocid1.loadbalancer.oc1.phx.aaaabalancer%06d", s.serial), Name: name, State: stateCreating, Doc: d, made: time.Now(),
	}
	for _, name := range []string{"listeners", "backendSets", "certificates", "ruleSets", "hostnames"} {
		if d[name] == nil {
			d[name] = document{}
		}
	}
	for _, v := range part(d, "certificates") {
		withoutKey(v.(document)) //nolint:forcetypeassert // its shape was judged
	}
	for _, v := range list(d["reservedIps"]) {
		id := v.(document)["id"] //nolint:forcetypeassert // its shape was judged
		at := slices.IndexFunc(s.reserved, func(r *reserved) bool { return r.id == id })
		lb.reserved = s.reserved[at]
		lb.reserved.state = "ASSIGNED"
	}
	s.balancers = append(s.balancers, lb)
	made := s.begin("CreateLoadBalancer", lb, func(lb *LoadBalancer) { lb.State = stateActive })
	if key != "" {
		if s.tokens == nil {
			s.tokens = map[string]token{}
		}
		s.tokens[key] = token{sum: sum, work: made.id, at: time.Now()}
	}
	accept(w, made.id)
}

// accept is the answer to a write: work begins, and nothing has happened yet.
func accept(w http.ResponseWriter, id string) {
	w.Header().Set("Opc-Work-Request-Id", id)
	w.WriteHeader(http.StatusNoContent)
}
