package azure

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

// This file reads documents into structs, and writes them without changing fields that the structs do not have.

// doc is a document as JSON.
type doc = map[string]any

// resource has the fields that all documents share.
type resource struct {
	subresource
	ETag     string            `json:"etag"`
	Location string            `json:"location"`
	Edge     *edgeZone         `json:"extendedLocation"`
	SKU      sku               `json:"sku"`
	Tags     map[string]string `json:"tags"`
	Zones    []string          `json:"zones"`
}

// subresource is a part of a document, or a reference to one by its ID.
type subresource struct {
	object
	ID   string `json:"id"`
	Name string `json:"name"`
}

type edgeZone struct {
	object
	Name string `json:"name"`
	Type string `json:"type"`
}

type sku struct {
	object
	Name string `json:"name"`
}

// newResource begins a document that this program makes.
func (c *Config) newResource(mark string) resource {
	r := resource{Location: c.Location}
	if c.EdgeName != "" {
		r.Edge = &edgeZone{Name: c.EdgeName, Type: c.EdgeType}
	}
	if uid, _ := ownership.Marked([]string{mark}); uid != "" {
		r.Tags = map[string]string{clusterTag: uid}
	}
	return r
}

// marks are the mark of the cluster that a resource is of, if it has one.
func (r *resource) marks() []string {
	if uid, marked := tag(r.Tags, clusterTag); marked {
		return []string{ownership.ClusterMark(uid)}
	}
	return nil
}

// hasMark reports whether a resource carries the mark of this cluster.
func (r *resource) hasMark(mark string) bool { return mark != "" && slices.Contains(r.marks(), mark) }

func (s *subresource) hasName(name string) bool { return strings.EqualFold(s.Name, name) }

func (s *subresource) lowerID() string { return strings.ToLower(s.ID) }

func (s *subresource) name() string { return s.Name }

// named is a part of a document or a whole one.
type named interface {
	name() string
	hasName(name string) bool
}

// find returns the first element that matches, nil for none.
func find[P any](list []P, matches func(P) bool) (found P) {
	if i := slices.IndexFunc(list, matches); i >= 0 {
		return list[i]
	}
	return found
}

func findByName[P named](list []P, name string) P {
	return find(list, func(p P) bool { return p.hasName(name) })
}

// object is embedded in the structs of JSON objects, and holds the object that was read; nil in a new one.
type object struct{ raw doc }

func (o *object) source() *doc { return &o.raw }

// parse reads a document into a struct; nil is one that does not exist.
func parse[T any](d doc) *T {
	if d == nil {
		return nil
	}
	t := new(T)
	decode(d, reflect.ValueOf(t).Elem())
	return t
}

func parseAll[T any](list []doc) []*T {
	all := make([]*T, len(list))
	for i, d := range list {
		all[i] = parse[T](d)
	}
	return all
}

// format writes a struct as a document.
func format[T any](t *T) doc {
	if t == nil {
		return nil
	}
	return encodeStruct(reflect.ValueOf(t).Elem())
}

// clone is a copy of a struct with all that it refers to.
func clone[T any](t *T) *T { return parse[T](format(t)) }

// editOf is the edit of a document as a struct.
func editOf[T any](e func(*T) error) edit {
	return func(d doc) (doc, error) {
		t := parse[T](d)
		err := e(t)
		return format(t), err
	}
}

// decode sets a value from JSON, and reports whether it is of the value's type.
func decode(from any, to reflect.Value) (ok bool) {
	switch p := to.Addr().Interface().(type) {
	case *string:
		*p, ok = from.(string)
	case *bool:
		*p, ok = from.(bool)
	case *int:
		var number float64
		number, ok = from.(float64)
		*p = int(number)
	case *map[string]string:
		var given doc
		if given, ok = from.(doc); ok {
			*p = map[string]string{}
			for key := range given {
				if text, isText := given[key].(string); isText {
					(*p)[key] = text
				}
			}
		}
	case interface{ source() *doc }:
		if *p.source(), ok = from.(doc); ok {
			eachField(to, func(key string, field reflect.Value) { decode((*p.source())[key], field) })
		}
	default:
		if to.Kind() == reflect.Slice {
			return decodeList(from, to)
		}
		target := reflect.New(to.Type().Elem())
		if ok = decode(from, target.Elem()); ok {
			to.Set(target)
		}
	}
	return ok
}

func decodeList(from any, to reflect.Value) bool {
	list, ok := from.([]any)
	if ok {
		to.Set(reflect.MakeSlice(to.Type(), 0, len(list)))
	}
	for _, item := range list {
		if one := reflect.New(to.Type().Elem()).Elem(); decode(item, one) {
			to.Set(reflect.Append(to, one))
		}
	}
	return ok
}

// encode is the reverse of decode.
func encode(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Int:
		return float64(v.Int())
	case reflect.Map:
		object := doc{}
		for entries := v.MapRange(); entries.Next(); {
			object[entries.Key().String()] = entries.Value().Interface()
		}
		return object
	case reflect.Pointer:
		return encode(v.Elem())
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = encode(v.Index(i))
		}
		return list
	case reflect.Struct:
		return encodeStruct(v)
	}
	return v.Interface()
}

// encodeStruct leaves the fields of an object that were not changed as they were read. A text, list or part without a value is left out; a
// new object has all its numbers and switches, and properties.
func encodeStruct(v reflect.Value) doc {
	var raw doc
	if p, ok := reflect.TypeAssert[interface{ source() *doc }](v.Addr()); ok {
		raw = *p.source()
	}
	object := doc{}
	maps.Copy(object, raw)
	eachField(v, func(key string, field reflect.Value) {
		before := reflect.New(field.Type()).Elem()
		decode(raw[key], before)
		switch {
		case raw != nil && reflect.DeepEqual(before.Interface(), field.Interface()):
		case field.IsZero() && field.Kind() != reflect.Int && field.Kind() != reflect.Bool && key != "properties":
			delete(object, key)
		default:
			object[key] = encode(field)
		}
	})
	return object
}

// eachField visits the fields that a struct and those embedded in it have in JSON.
func eachField(v reflect.Value, visit func(key string, field reflect.Value)) {
	for f, field := range v.Fields() {
		if f.Anonymous {
			eachField(field, visit)
		} else if key := f.Tag.Get("json"); key != "" {
			visit(key, field)
		}
	}
}
