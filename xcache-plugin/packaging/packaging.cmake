# The Debian package: the plugin's file, documentation and examples. Nothing in /etc, so that an upgrade never asks about a configuration:
# the site writes its own, for which there is an example.
set(SMARTCACHE_MAINTAINER "smartcache maintainers <root@localhost>" CACHE STRING "Who the Debian package says to write to")
set(package xrootd-smartcache)
set(documents ${CMAKE_INSTALL_DATADIR}/doc/${package})
set(packaging ${CMAKE_CURRENT_SOURCE_DIR}/packaging)

string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${packaging}/changelog.in changelog @ONLY)
execute_process(COMMAND gzip -9nkf ${CMAKE_CURRENT_BINARY_DIR}/changelog COMMAND_ERROR_IS_FATAL ANY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz ${packaging}/copyright ${CMAKE_CURRENT_SOURCE_DIR}/../docs/admin.md DESTINATION ${documents} COMPONENT deb EXCLUDE_FROM_ALL)
install(FILES ${packaging}/lintian-overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME ${package} COMPONENT deb
  EXCLUDE_FROM_ALL)
install(FILES ${packaging}/smartcache.toml DESTINATION ${documents}/examples COMPONENT deb EXCLUDE_FROM_ALL)
install(FILES ${reference} DESTINATION ${documents}/examples RENAME smartcache.reference.toml COMPONENT deb EXCLUDE_FROM_ALL)

math(EXPR next_version "${plugin_version} + 1")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ${package})
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${SMARTCACHE_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "decides what an XRootD XCache stores, by a model of its own history")
set(CPACK_PACKAGE_DESCRIPTION
  "A decision plugin for XRootD's proxy file cache. At each open it answers\nadmit, bypass or evict, by a model that was trained on what this cache has\nseen; whatever is dead or slow, the open is answered in time. Activate it by\nthe directive pfc.decisionlib.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL plugin deb)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# The libraries that it is linked with are found by dpkg-shlibdeps; the server that loads it, and its major version, are not among them.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
  "xrootd-server-plugins (>= ${plugin_version}), xrootd-server-plugins (<< ${next_version}~)")
# For an endpoint with https; whoever names a ca_file of their own needs none.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
include(CPack)
