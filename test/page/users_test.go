package page

// password is that of all users of the tests.
const password = "pass word"

// users makes users with their roles, which may be none, and then everybody has to log in. The
// role root is made; the others are there already.
func (m *member) users(roles map[string]string) {
	m.Helper()
	m.call("/v3/auth/role/add", map[string]any{"name": "root"})
	roles["root"] = "root"
	for name, role := range roles {
		m.call("/v3/auth/user/add", map[string]any{"name": name, "password": password})
		if role != "" {
			m.call("/v3/auth/user/grant", map[string]any{"user": name, "role": role})
		}
	}
	m.call("/v3/auth/enable", nil)
}

// role makes a role that may write the keys with a prefix.
func (m *member) role(name, prefix string) {
	m.Helper()
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	m.call("/v3/auth/role/add", map[string]any{"name": name})
	m.call("/v3/auth/role/grant", map[string]any{"name": name, "perm": map[string]any{
		"permType": "READWRITE", "key": b64(prefix), "range_end": b64(end),
	}})
}

// logIn logs in by a password, in the view Access.
func (p *tab) logIn(user string) {
	p.Helper()
	p.view("Access")
	p.fill("input[name=user]", user)
	p.fill("input[name=password]", password)
	p.click("button", "Log in")
	p.until("a login", "document.querySelector('.me').textContent === "+quote(user))
}

// loggedOut waits until the page says that no user is logged in.
func (p *tab) loggedOut() {
	p.Helper()
	p.until("no login", "document.querySelector('.me').textContent === 'not logged in'")
}

// useToken logs in by a user's token, in the view Access.
func (p *tab) useToken(token, who string) {
	p.Helper()
	p.view("Access")
	p.fill("input[name=token]", token)
	p.click("button", "Use token")
	p.until("a login", "document.querySelector('.me').textContent === "+quote(who))
}

// fact waits until the page says something of something.
func (p *tab) fact(what, want string) {
	p.Helper()
	p.until(what, "[...document.querySelectorAll('dt')].find((e) => e.textContent === "+
		quote(what)+").nextSibling.textContent === "+quote(want))
}

// kept fails the test if the browser keeps anything for the site of the page but a login of the
// tab.
func (p *tab) kept(login bool) {
	p.Helper()
	want := `[0,"",0]`
	if login {
		want = `[0,"",1]`
	}
	var kept string
	p.eval("JSON.stringify([localStorage.length, document.cookie, sessionStorage.length])", &kept)
	if kept != want {
		p.Errorf("the browser keeps %s, not %s", kept, want)
	}
}
