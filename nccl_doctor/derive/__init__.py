"""Tables made from tables: one module a question, each declares what it reads and fills, `registry` orders them."""
