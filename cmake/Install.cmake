include(GNUInstallDirs)
install(TARGETS tessera EXPORT tesseraTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
