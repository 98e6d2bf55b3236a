package order

// Backend says how the service behind the gate reads requests. It decides which requests
// are ambiguous: a profile with fewer liberties refuses less.
type Backend int8

// The profiles.
const (
	Strict Backend = iota // refuse whatever any other profile, or an unlisted backend, could read differently
	Tomcat                // plain servlets
	Spring                // Spring MVC, also of the 4.x line
	PHP                   // mod_php, php-fpm, the built-in server; with front controllers
)

// readings are the liberties that a backend takes. Tests have shown each of them
// (docs/order-ids.md).
type readings struct {
	session    bool // drops ;jsessionid= at the end of a path, and nothing else reads it
	params     bool // cuts ;name=value off path segments
	anyCase    bool // reads /ORDERS as /orders, also by Unicode folding
	trailing   bool // ignores the rest of the last segment after its name: a slash, .json, a space
	indexPHP   bool // reaches a route through /index.php/..., or /?route=...
	parameters bool // lets a parameter or cookie with the ID's name override the path, or a field override the method
	authority  bool // reads the text after two slashes as a host: //x/orders/42 is /orders/42
	anyDepth   bool // finds a JSON member by its name, at any depth
	members    bool // reads the members of a JSON body as parameters
}

var profiles = [...]readings{
	Strict: {params: true, anyCase: true, trailing: true, indexPHP: true, parameters: true, anyDepth: true, authority: true, members: true},
	Tomcat: {session: true, params: true, anyDepth: true},
	Spring: {session: true, params: true, trailing: true, parameters: true},
	PHP:    {trailing: true, indexPHP: true, parameters: true, authority: true, members: true},
}

// frontControllers are the paths of a PHP front controller, unless a rule lists others.
var frontControllers = []string{"/index.php", "/"}

// union is what at least one of two backends does.
func (r readings) union(o readings) readings {
	return readings{
		session: r.session || o.session, params: r.params || o.params, anyCase: r.anyCase || o.anyCase,
		trailing: r.trailing || o.trailing, indexPHP: r.indexPHP || o.indexPHP, parameters: r.parameters || o.parameters,
		anyDepth: r.anyDepth || o.anyDepth, authority: r.authority || o.authority,
		members: r.members || o.members,
	}
}
