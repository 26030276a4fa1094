package inventory

import (
	"context"
	"fmt"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// maxObjects bounds one listing. A cluster has at most 5,000 nodes; what an account holds besides them is a small multiple.
const maxObjects = 50_000

// withChecks returns a source whose reads return an error if the provider's code panics or a response is unusable. They run on the
// inventory's goroutines, so that no caller's recover would catch the panic.
func (s Source[ID, V]) withChecks() Source[ID, V] {
	list, get, getMany := s.List, s.Get, s.GetMany
	if list != nil {
		s.List = func(ctx context.Context) (objects []V, pages int, err error) {
			defer rescue.Into(&err, "listing "+s.Kind+"s")
			objects, pages, err = list(ctx)
			if err != nil && partialOf[ID](err) == nil {
				return objects, pages, err
			}
			if wrong := s.check(objects...); wrong != nil {
				err = wrong
			}
			return objects, pages, err
		}
	}
	if get != nil {
		s.Get = func(ctx context.Context, id ID) (v V, err error) {
			defer rescue.Into(&err, "reading "+s.Kind)
			if v, err = get(ctx, id); err == nil {
				err = s.check(v)
			}
			return v, err
		}
	}
	if getMany != nil {
		s.GetMany = func(ctx context.Context, ids []ID) (objects []V, err error) {
			defer rescue.Into(&err, "reading "+s.Kind+"s")
			if objects, err = getMany(ctx, ids); err == nil {
				err = s.check(objects...)
			}
			return objects, err
		}
	}
	return s
}

// check refuses a response with an object without an ID, such as null: it stands for an unknown object, so the response is incomplete. The
// indexes are computed here too, where a panic does no harm.
func (s Source[ID, V]) check(objects ...V) error {
	if len(objects) > maxObjects {
		return &cloudapi.Error{Class: cloudapi.ErrTransient, Message: fmt.Sprintf("%d objects, more than the %d that one listing may hold", len(objects), maxObjects)}
	}
	var none ID
	for _, v := range objects {
		if s.ID(v) == none {
			return &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "an incomplete answer: an object in it has no ID"}
		}
		for _, keys := range s.Indexes {
			_ = keys(v)
		}
	}
	return nil
}
