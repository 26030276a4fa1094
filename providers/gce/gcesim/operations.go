package gcesim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// operation is a change in progress. It takes effect before it is done; a deletion when it is done.
type operation struct {
	doc           document
	target        string
	kind          string
	effect, done  time.Time
	apply         func() *refusal
	applied, over bool
	number        int
}

// start begins a change of an object. A refusal by apply shows only in the operation.
func (s *Sim) start(at location, kind, requestID string, apply func() *refusal) (document, *refusal) {
	target := at.path()
	for _, o := range s.open {
		if o.target == target {
			return nil, &refusal{http.StatusBadRequest, "resourceNotReady", fmt.Sprintf("The resource '%s' is not ready", target)}
		}
	}
	s.number++
	now := time.Now()
	takes := time.Duration(float64(s.activation) * (0.5 + float64(s.number*37%100)/100))
	name := fmt.Sprintf("operation-%d-%06x", 1_700_000_000_000+s.number, s.number) // a number, so that two runs can be compared
	where := location{project: at.project, scope: at.scope, collection: "operations", name: name}
	if where.scope == "" {
		where.scope = "global"
	}
	o := &operation{
		target: target, kind: kind + " " + at.collection, effect: now.Add(takes / 2), done: now.Add(takes), apply: apply, number: s.number,
		doc: document{
			"kind": "compute#operation", "id": strconv.Itoa(7_000_000_000_000_000_000 + s.number), "name": name, "operationType": kind,
			"status": "RUNNING", "progress": 0, "insertTime": timestamp(now), "startTime": timestamp(now), "user": "ccm@my-project.iam.gserviceaccount.com",
			"targetId": strconv.Itoa(s.number), "targetLink": linkTo(target), "selfLink": linkTo(where.path()),
		},
	}
	if kind == "delete" {
		o.effect = o.done
	}
	scopeLink(o.doc, where)
	s.operations[where.path()], s.open = o, append(s.open, o)
	if kind == "setLabels" { // in the real API it is done at once
		o.effect, o.done = now, now
		s.advance()
	}
	if requestID != "" {
		s.byRequest[requestID] = where.path()
	}
	answer := clone(o.doc)
	return answer, nil
}

// advance lets changes take effect and end, in order.
func (s *Sim) advance() {
	now := time.Now()
	var due []*operation
	for _, o := range s.open {
		if !s.stuck[o.kind] {
			due = append(due, o)
		}
	}
	slices.SortFunc(due, func(a, b *operation) int {
		if c := a.effect.Compare(b.effect); c != 0 {
			return c
		}
		return a.number - b.number
	})
	for _, o := range due {
		if !o.applied && !o.effect.After(now) {
			o.applied = true
			if err := o.apply(); err != nil {
				o.fail(err)
			}
		}
		if o.applied && !o.done.After(now) {
			o.over = true
			o.doc["status"], o.doc["progress"], o.doc["endTime"] = "DONE", 100, timestamp(o.done)
		}
	}
	s.open = slices.DeleteFunc(s.open, func(o *operation) bool { return o.over })
}

func (o *operation) fail(err *refusal) {
	var code strings.Builder
	for _, r := range err.reason {
		if r >= 'A' && r <= 'Z' {
			code.WriteByte('_')
		}
		code.WriteString(strings.ToUpper(string(r)))
	}
	if err.reason == "alreadyExists" || err.reason == "notFound" {
		code.Reset()
		code.WriteString(map[string]string{"alreadyExists": "RESOURCE_ALREADY_EXISTS", "notFound": "RESOURCE_NOT_FOUND"}[err.reason])
	}
	if err.reason == "resourceInUseByAnotherResource" {
		code.Reset()
		code.WriteString("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE")
	}
	o.doc["error"] = map[string]any{"errors": []any{map[string]any{"code": code.String(), "message": err.message}}}
	o.doc["httpErrorStatusCode"], o.doc["httpErrorMessage"] = err.status, strings.ToUpper(http.StatusText(err.status))
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// scopeLink adds the link to an object's region or zone.
func scopeLink(d document, at location) {
	kind, _, _ := strings.Cut(at.scope, "/")
	switch kind {
	case "regions":
		d["region"] = linkTo("projects/" + at.project + "/" + at.scope)
	case "zones":
		d["zone"] = linkTo("projects/" + at.project + "/" + at.scope)
	}
}
